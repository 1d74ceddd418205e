package fsm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// standing is who is charged, who goes first and who may have how much. Values
// in it are immutable.
type standing struct {
	accounts map[string]*cluster.Account
	members  map[cluster.Assoc]*cluster.Member
	qos      map[string]*cluster.QOS
	quotas   map[cluster.Subject]*cluster.Quota
	policy   *cluster.AccountPolicy // nil while nobody set one
	spent    map[cluster.Holder]*cluster.Spent

	// What follows is made from the above and from the jobs, and never stored.
	limiter *cluster.Limiter // nil while there are no quotas
	// home is each user's default account; jobsOf counts the jobs of each that
	// wait or run.
	home   map[cluster.UID]string
	jobsOf map[cluster.UID]int
	specs  specBytes
	// rev rises when accounts or their users change.
	rev    uint64
	used   map[budgetKey]cluster.GPUTime
	usedAt uint64 // the index as of which used is, 0 for none
}

type budgetKey struct {
	subject cluster.Subject
	period  cluster.Period
}

func newStanding() standing {
	return standing{
		accounts: map[string]*cluster.Account{}, members: map[cluster.Assoc]*cluster.Member{}, qos: map[string]*cluster.QOS{},
		quotas: map[cluster.Subject]*cluster.Quota{}, spent: map[cluster.Holder]*cluster.Spent{},
		home: map[cluster.UID]string{}, jobsOf: map[cluster.UID]int{}, specs: newSpecBytes(),
	}
}

// view is a copy for a snapshot.
func (d *standing) view() standing {
	return standing{
		accounts: maps.Clone(d.accounts), members: maps.Clone(d.members), qos: maps.Clone(d.qos), quotas: maps.Clone(d.quotas),
		policy: d.policy, spent: maps.Clone(d.spent),
	}
}

// policyOf is what holds for all accounts.
func (d *standing) policyOf() *cluster.AccountPolicy {
	if d.policy != nil {
		return d.policy
	}
	p := cluster.DefaultAccountPolicy()
	return &p
}

// keyOfRuling is what names a rule among all of them.
func keyOfRuling(r conv.Ruling) string {
	switch x := r.(type) {
	case *cluster.Account:
		return "account/" + x.Name
	case *cluster.Member:
		return memberKey(cluster.Assoc{Account: x.Account, UID: x.UID})
	case *cluster.QOS:
		return "qos/" + x.Name
	case *cluster.Quota:
		return "quota/" + x.Subject.String()
	}
	return "policy/"
}

func memberKey(a cluster.Assoc) string { return fmt.Sprintf("member/%s/%d", a.Account, a.UID) }

// rulings calls fn with each rule in an order that does not depend on maps.
func (d *standing) rulings(fn func(conv.Ruling)) {
	if d.policy != nil {
		fn(d.policy)
	}
	for _, name := range sortedKeys(d.qos) {
		fn(d.qos[name])
	}
	for _, name := range sortedKeys(d.accounts) {
		fn(d.accounts[name])
	}
	for _, a := range slices.SortedFunc(maps.Keys(d.members), func(a, b cluster.Assoc) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.UID, b.UID))
	}) {
		fn(d.members[a])
	}
	for _, s := range slices.SortedFunc(maps.Keys(d.quotas), func(a, b cluster.Subject) int { return cmp.Compare(a.String(), b.String()) }) {
		fn(d.quotas[s])
	}
}

// each sends all records.
func (d *standing) each(w *putter) {
	d.rulings(func(r conv.Ruling) {
		w.send(&logv1.Record{Kind: &logv1.Record_Standing{Standing: conv.RulingToLog(r)}})
	})
	for _, h := range slices.SortedFunc(maps.Keys(d.spent), func(a, b cluster.Holder) int { return cmp.Compare(holderKey(a), holderKey(b)) }) {
		w.send(&logv1.Record{Kind: &logv1.Record_Spent{Spent: conv.SpentToLog(d.spent[h])}})
	}
}

// find returns the rule of a key, nil when there is none.
func (d *standing) find(like conv.Ruling) conv.Ruling {
	switch x := like.(type) {
	case *cluster.Account:
		if v := d.accounts[x.Name]; v != nil {
			return v
		}
	case *cluster.Member:
		if v := d.members[cluster.Assoc{Account: x.Account, UID: x.UID}]; v != nil {
			return v
		}
	case *cluster.QOS:
		if v := d.qos[x.Name]; v != nil {
			return v
		}
	case *cluster.Quota:
		if v := d.quotas[x.Subject]; v != nil {
			return v
		}
	case *cluster.AccountPolicy:
		if d.policy != nil {
			return d.policy
		}
	}
	return nil
}

func revisionOf(r conv.Ruling) *uint64 {
	switch x := r.(type) {
	case *cluster.Account:
		return &x.Revision
	case *cluster.Member:
		return &x.Revision
	case *cluster.QOS:
		return &x.Revision
	case *cluster.Quota:
		return &x.Revision
	case *cluster.AccountPolicy:
		return &x.Revision
	}
	return new(uint64)
}

// setStanding puts a rule in place of the one that it was made from, or forgets
// it.
func (s *State) setStanding(index uint64, c *logv1.SetStanding) Result {
	r, err := conv.RulingFromLog(c.Standing)
	if err != nil {
		return refuse(cluster.CodeInvalid, "%v", err)
	}
	old := s.standing.find(r)
	base := uint64(0)
	if old != nil {
		base = *revisionOf(old)
	}
	switch {
	case c.Remove && old == nil:
		return refuse(cluster.CodeNotFound, "%s is not known", wordsOf(r))
	case !c.Remove && base != c.Base:
		return refuse(cluster.CodeConflict, "%s was changed meanwhile; look at it and try again", wordsOf(r))
	}
	if c.Remove {
		if e := s.mayForget(r); e != nil {
			return Result{Err: e}
		}
		s.forgetRuling(r)
	} else {
		if e := s.mayRule(r, old); e != nil {
			return Result{Err: e}
		}
		*revisionOf(r) = index
		s.onlyDefault(index, r)
		if p, ok := r.(*cluster.AccountPolicy); ok {
			s.settleSpent(p)
		}
		s.putRuling(r)
	}
	switch r.(type) {
	case *cluster.Account, *cluster.Quota:
		s.recount()
	default:
		if c.Remove { // quotas went with it
			s.recount()
		}
	}
	s.changed(Change{Partition: "*"}) // plan anew
	return Result{}
}

func wordsOf(r conv.Ruling) string {
	switch x := r.(type) {
	case *cluster.Account:
		return fmt.Sprintf("account %q", x.Name)
	case *cluster.Member:
		return fmt.Sprintf("user %d of account %q", x.UID, x.Account)
	case *cluster.QOS:
		return fmt.Sprintf("qos %q", x.Name)
	case *cluster.Quota:
		return fmt.Sprintf("quota of %s", x.Subject)
	}
	return "policy of accounts"
}

func (s *State) touchRuling(r conv.Ruling) {
	s.hash.rest.touch(entity{kindStanding, keyOfRuling(r)})
}

func (s *State) putRuling(r conv.Ruling) {
	d := &s.standing
	d.rev++
	switch x := r.(type) {
	case *cluster.Account:
		d.accounts[x.Name] = x
	case *cluster.Member:
		d.members[cluster.Assoc{Account: x.Account, UID: x.UID}] = x
		if d.leaveHome(x); x.Default {
			d.home[x.UID] = x.Account
		}
	case *cluster.QOS:
		d.qos[x.Name] = x
	case *cluster.Quota:
		d.quotas[x.Subject] = x
	case *cluster.AccountPolicy:
		d.policy = x
	}
	s.touchRuling(r)
}

// forgetRuling takes a rule away; with an account go its users and their quotas,
// with a QOS its quotas.
func (s *State) forgetRuling(r conv.Ruling) {
	d := &s.standing
	s.touchRuling(r)
	d.rev++
	switch x := r.(type) {
	case *cluster.Account:
		delete(d.accounts, x.Name)
		for a, m := range d.members {
			if a.Account == x.Name {
				delete(d.members, a)
				d.leaveHome(m)
				s.touchRuling(m)
			}
		}
		s.forgetQuotas(func(q cluster.Subject) bool { return q.Account == x.Name })
	case *cluster.Member:
		delete(d.members, cluster.Assoc{Account: x.Account, UID: x.UID})
		d.leaveHome(x)
		s.forgetQuotas(func(q cluster.Subject) bool { return q.Account == x.Account && q.User && q.UID == x.UID })
	case *cluster.QOS:
		delete(d.qos, x.Name)
		s.forgetQuotas(func(q cluster.Subject) bool { return q.QOS == x.Name })
	case *cluster.Quota:
		delete(d.quotas, x.Subject)
	case *cluster.AccountPolicy:
		p := cluster.DefaultAccountPolicy()
		s.settleSpent(&p)
		d.policy = nil
	}
}

// leaveHome forgets that an account was somebody's default one.
func (d *standing) leaveHome(m *cluster.Member) {
	if d.home[m.UID] == m.Account {
		delete(d.home, m.UID)
	}
}

func (s *State) forgetQuotas(of func(cluster.Subject) bool) {
	for sub, q := range s.standing.quotas {
		if of(sub) {
			delete(s.standing.quotas, sub)
			s.touchRuling(q)
		}
	}
}

// mayForget refuses to forget what something else needs.
func (s *State) mayForget(r conv.Ruling) *cluster.Error {
	d := &s.standing
	name, of := "", func(*cluster.Job) bool { return false }
	switch x := r.(type) {
	case *cluster.Account:
		for _, n := range sortedKeys(d.accounts) {
			if d.accounts[n].Parent == x.Name {
				return cluster.Errorf(cluster.CodeConflict, "account %s has account %s below it; remove or move that first", x.Name, n)
			}
		}
		name, of = "account "+x.Name, func(j *cluster.Job) bool { return j.Spec.Account == x.Name }
	case *cluster.QOS:
		for _, n := range sortedKeys(d.qos) {
			if slices.Contains(d.qos[n].Preempts, x.Name) {
				return cluster.Errorf(cluster.CodeConflict, "qos %s preempts qos %s; change that first", n, x.Name)
			}
		}
		for _, n := range sortedKeys(d.accounts) {
			if a := d.accounts[n]; a.DefaultQOS == x.Name || slices.Contains(a.QOS, x.Name) {
				return cluster.Errorf(cluster.CodeConflict, "account %s allows qos %s; change that first", n, x.Name)
			}
		}
		name, of = "qos "+x.Name, func(j *cluster.Job) bool { return j.Spec.QOS == x.Name }
	}
	n := 0
	for _, j := range s.unended() {
		if of(j) {
			n++
		}
	}
	if n > 0 {
		return cluster.Errorf(cluster.CodeConflict, "%s has %d jobs that wait or run; cancel them or wait for their end", name, n)
	}
	return nil
}

// mayRule refuses a rule that does not go with the others.
func (s *State) mayRule(r, old conv.Ruling) *cluster.Error {
	d := &s.standing
	bound := func(n, most int, what string) *cluster.Error {
		if old == nil && n >= most {
			return cluster.Errorf(cluster.CodeExhausted, "there are %d %s, at most %d are allowed", n, what, most)
		}
		return nil
	}
	noQOS := func(name string) *cluster.Error {
		return cluster.Errorf(cluster.CodeInvalid, "qos %q is not known; see: berth qos list", name)
	}
	switch x := r.(type) {
	case *cluster.Account:
		if e := d.checkParent(x); e != nil {
			return e
		}
		for _, q := range append(slices.Clone(x.QOS), x.DefaultQOS) {
			if q != "" && d.qos[q] == nil {
				return noQOS(q)
			}
		}
		return bound(len(d.accounts), cluster.MaxAccounts, "accounts")
	case *cluster.Member:
		if d.accounts[x.Account] == nil {
			return cluster.Errorf(cluster.CodeNotFound, "account %q is not known; see: berth account list", x.Account)
		}
		return bound(len(d.members), cluster.MaxMembers, "users of accounts")
	case *cluster.QOS:
		for _, name := range x.Preempts {
			if o := d.qos[name]; o == nil {
				return noQOS(name)
			} else if o.Priority >= x.Priority {
				return cluster.Errorf(cluster.CodeInvalid, "preempts: qos %s has priority %d, and only those below %d make room for qos %s; else it would not have what they leave", name, o.Priority, x.Priority, x.Name)
			}
		}
		for _, name := range sortedKeys(d.qos) {
			if o := d.qos[name]; slices.Contains(o.Preempts, x.Name) && o.Priority <= x.Priority {
				return cluster.Errorf(cluster.CodeInvalid, "priority: qos %s preempts qos %s and has priority %d; stay below it", name, x.Name, o.Priority)
			}
		}
		return bound(len(d.qos), cluster.MaxQOS, "qualities of service")
	case *cluster.Quota:
		switch sub := x.Subject; {
		case sub.Account != "" && d.accounts[sub.Account] == nil:
			return cluster.Errorf(cluster.CodeNotFound, "account %q is not known; see: berth account list", sub.Account)
		case sub.QOS != "" && d.qos[sub.QOS] == nil:
			return noQOS(sub.QOS)
		}
		return bound(len(d.quotas), cluster.MaxQuotas, "quotas")
	}
	return nil
}

// checkParent refuses an account that is its own ancestor, or too deep.
func (d *standing) checkParent(x *cluster.Account) *cluster.Error {
	depth := 1
	for name := x.Parent; name != ""; depth++ {
		a := d.accounts[name]
		switch {
		case a == nil:
			return cluster.Errorf(cluster.CodeNotFound, "parent: account %q is not known; see: berth account list", name)
		case name == x.Name || depth > cluster.MaxAccountDepth:
			return cluster.Errorf(cluster.CodeInvalid, "parent: account %s would be below itself, or more than %d deep", x.Name, cluster.MaxAccountDepth)
		}
		name = a.Parent
	}
	return nil
}

// onlyDefault takes from others of its kind what a rule is to have alone.
func (s *State) onlyDefault(index uint64, r conv.Ruling) {
	switch x := r.(type) {
	case *cluster.Member:
		first := true
		for a, m := range s.standing.members {
			if a.UID != x.UID || a.Account == x.Account {
				continue
			}
			first = false
			if x.Default && m.Default {
				less := *m
				less.Default, less.Revision = false, index
				s.putRuling(&less)
			}
		}
		x.Default = x.Default || first
	case *cluster.QOS:
		for _, o := range s.standing.qos {
			if x.Default && o.Default && o.Name != x.Name {
				less := *o
				less.Default, less.Revision = false, index
				s.putRuling(&less)
			}
		}
	}
}

// record returns the stored form of a rule, nil when it is gone.
func (d *standing) record(key string) proto.Message {
	var found conv.Ruling
	kind, rest, _ := cutKey(key)
	switch kind {
	case "account":
		found = d.find(&cluster.Account{Name: rest})
	case "member":
		name, uid, _ := cutKey(rest)
		n, _ := strconv.ParseUint(uid, 10, 32)
		found = d.find(&cluster.Member{Account: name, UID: cluster.UID(n)})
	case "qos":
		found = d.find(&cluster.QOS{Name: rest})
	case "quota":
		found = d.findQuota(rest)
	default:
		found = d.find(&cluster.AccountPolicy{})
	}
	if found == nil {
		return nil
	}
	return conv.RulingToLog(found)
}
