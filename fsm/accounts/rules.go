package accounts

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Find returns the stored rule with the same key as like, nil if there is none.
func (d *rules) Find(like conv.Ruling) conv.Ruling {
	switch x := like.(type) {
	case *accounting.Account:
		if v := d.accounts.Get(x.Name); v != nil {
			return v
		}
	case *accounting.Member:
		if v := d.members.Get(accounting.Assoc{Account: x.Account, UID: x.UID}); v != nil {
			return v
		}
	case *accounting.QOS:
		if v := d.qos.Get(x.Name); v != nil {
			return v
		}
	case *accounting.Quota:
		if v := d.quotas.Get(x.Subject); v != nil {
			return v
		}
	case *accounting.AccountPolicy:
		if d.policy != nil {
			return d.policy
		}
	}
	return nil
}

// RevisionOf returns a pointer to the revision of a rule.
func RevisionOf(r conv.Ruling) *uint64 {
	switch x := r.(type) {
	case *accounting.Account:
		return &x.Revision
	case *accounting.Member:
		return &x.Revision
	case *accounting.QOS:
		return &x.Revision
	case *accounting.Quota:
		return &x.Revision
	case *accounting.AccountPolicy:
		return &x.Revision
	}
	return new(uint64)
}

// set replaces the rule that a new one was made from, or removes it.
func (d *Books) set(at command.Entry, c *logv1.SetStanding) command.Result {
	r, err := conv.RulingFromLog(c.Standing)
	if err != nil {
		return command.Refuse(cluster.CodeInvalid, "%v", err)
	}
	old := d.Find(r)
	base := uint64(0)
	if old != nil {
		base = *RevisionOf(old)
	}
	switch {
	case c.Remove && old == nil:
		return command.Refuse(cluster.CodeNotFound, "%s is not known", wordsOf(r))
	case !c.Remove && base != c.Base:
		return command.Refuse(cluster.CodeConflict, "%s was changed meanwhile; look at it and try again", wordsOf(r))
	}
	if c.Remove {
		if e := d.mayForget(r); e != nil {
			return command.Result{Err: e}
		}
		d.forgetRuling(r)
		if at.Version >= command.HomeVersion {
			d.rehome(at.Index, r)
		}
	} else {
		if e := d.mayRule(r, old); e != nil {
			return command.Result{Err: e}
		}
		*RevisionOf(r) = at.Index
		d.onlyDefault(at.Index, r)
		if p, ok := r.(*accounting.AccountPolicy); ok {
			d.settleSpent(p)
		}
		d.putRuling(r)
		if at.Version >= command.HomeVersion {
			d.rehome(at.Index, r)
		}
	}
	switch r.(type) {
	case *accounting.Account, *accounting.Quota:
		d.Recount()
	default:
		if c.Remove { // its quotas went with it
			d.Recount()
		}
	}
	return command.Result{}
}

// rehome gives each user who lost a default account through the change of r, and
// has others, the first of those by name, so that jobs that name no account are
// always charged.
func (d *Books) rehome(index uint64, r conv.Ruling) {
	change, ofUser := r.(*accounting.Member)
	if _, ofAccount := r.(*accounting.Account); !ofUser && !ofAccount {
		return
	}
	first := map[cluster.UID]*accounting.Member{}
	for _, m := range d.members.Rows() {
		if d.home[m.UID] != "" || ofUser && m.UID != change.UID {
			continue
		}
		if f := first[m.UID]; f == nil || f == change || m != change && m.Account < f.Account {
			first[m.UID] = m
		}
	}
	for _, m := range first {
		home := *m
		home.Default, home.Revision = true, index
		d.putRuling(&home)
	}
}

func wordsOf(r conv.Ruling) string {
	switch x := r.(type) {
	case *accounting.Account:
		return fmt.Sprintf("account %q", x.Name)
	case *accounting.Member:
		return fmt.Sprintf("user %d of account %q", x.UID, x.Account)
	case *accounting.QOS:
		return fmt.Sprintf("qos %q", x.Name)
	case *accounting.Quota:
		return fmt.Sprintf("quota of %s", x.Subject)
	}
	return "policy of accounts"
}

func (d *Books) putRuling(r conv.Ruling) {
	d.rev++
	switch x := r.(type) {
	case *accounting.Account:
		d.accounts.Put(x.Name, x)
	case *accounting.Member:
		d.members.Put(accounting.Assoc{Account: x.Account, UID: x.UID}, x)
		if d.leaveHome(x); x.Default {
			d.home[x.UID] = x.Account
		}
	case *accounting.QOS:
		d.qos.Put(x.Name, x)
	case *accounting.Quota:
		d.quotas.Put(x.Subject, x)
	case *accounting.AccountPolicy:
		d.policy = x
		d.policyDigest.Touch(table.One{})
	}
}

// forgetRuling removes a rule; an account takes its users and their quotas with it,
// a QOS its quotas.
func (d *Books) forgetRuling(r conv.Ruling) {
	d.rev++
	switch x := r.(type) {
	case *accounting.Account:
		d.accounts.Drop(x.Name)
		for a, m := range d.members.Rows() {
			if a.Account == x.Name {
				d.members.Drop(a)
				d.leaveHome(m)
			}
		}
		d.forgetQuotas(func(q accounting.Subject) bool { return q.Account == x.Name })
	case *accounting.Member:
		d.members.Drop(accounting.Assoc{Account: x.Account, UID: x.UID})
		d.leaveHome(x)
		d.forgetQuotas(func(q accounting.Subject) bool { return q.Account == x.Account && q.User && q.UID == x.UID })
	case *accounting.QOS:
		d.qos.Drop(x.Name)
		d.forgetQuotas(func(q accounting.Subject) bool { return q.QOS == x.Name })
	case *accounting.Quota:
		d.quotas.Drop(x.Subject)
	case *accounting.AccountPolicy:
		p := accounting.DefaultAccountPolicy()
		d.settleSpent(&p)
		d.policy = nil
		d.policyDigest.Touch(table.One{})
	}
}

// leaveHome records that an account is no longer a user's default.
func (d *rules) leaveHome(m *accounting.Member) {
	if d.home[m.UID] == m.Account {
		delete(d.home, m.UID)
	}
}

func (d *Books) forgetQuotas(of func(accounting.Subject) bool) {
	for sub := range d.quotas.Rows() {
		if of(sub) {
			d.quotas.Drop(sub)
		}
	}
}

// mayForget refuses to remove a rule that others need.
func (d *Books) mayForget(r conv.Ruling) *cluster.Error {
	name, of := "", func(*cluster.Job) bool { return false }
	switch x := r.(type) {
	case *accounting.Account:
		for _, n := range d.accounts.Keys() {
			if d.accounts.Get(n).Parent == x.Name {
				return cluster.Errorf(cluster.CodeConflict, "account %s has account %s below it; remove or move that first", x.Name, n)
			}
		}
		name, of = "account "+x.Name, func(j *cluster.Job) bool { return j.Spec.Account == x.Name }
	case *accounting.QOS:
		for _, n := range d.qos.Keys() {
			if slices.Contains(d.qos.Get(n).Preempts, x.Name) {
				return cluster.Errorf(cluster.CodeConflict, "qos %s preempts qos %s; change that first", n, x.Name)
			}
		}
		for _, n := range d.accounts.Keys() {
			if a := d.accounts.Get(n); a.DefaultQOS == x.Name || slices.Contains(a.QOS, x.Name) {
				return cluster.Errorf(cluster.CodeConflict, "account %s allows qos %s; change that first", n, x.Name)
			}
		}
		name, of = "qos "+x.Name, func(j *cluster.Job) bool { return j.Spec.QOS == x.Name }
	}
	n := 0
	for _, j := range d.rest.Unended() {
		if of(j) {
			n++
		}
	}
	if n > 0 {
		return cluster.Errorf(cluster.CodeConflict, "%s has %d waiting or running jobs; cancel them or wait until they end", name, n)
	}
	return nil
}

// mayRule refuses a rule that conflicts with the others.
func (d *Books) mayRule(r, old conv.Ruling) *cluster.Error {
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
	case *accounting.Account:
		if e := d.checkParent(x); e != nil {
			return e
		}
		for _, q := range append(slices.Clone(x.QOS), x.DefaultQOS) {
			if q != "" && d.qos.Get(q) == nil {
				return noQOS(q)
			}
		}
		return bound(d.accounts.Len(), accounting.MaxAccounts, "accounts")
	case *accounting.Member:
		if d.accounts.Get(x.Account) == nil {
			return cluster.Errorf(cluster.CodeNotFound, "account %q is not known; see: berth account list", x.Account)
		}
		return bound(d.members.Len(), accounting.MaxMembers, "users of accounts")
	case *accounting.QOS:
		for _, name := range x.Preempts {
			if o := d.qos.Get(name); o == nil {
				return noQOS(name)
			} else if o.Priority >= x.Priority {
				return cluster.Errorf(cluster.CodeInvalid, "preempts: qos %s has priority %d, but only those below %d can be preempted for qos %s", name, o.Priority, x.Priority, x.Name)
			}
		}
		for _, name := range d.qos.Keys() {
			if o := d.qos.Get(name); slices.Contains(o.Preempts, x.Name) && o.Priority <= x.Priority {
				return cluster.Errorf(cluster.CodeInvalid, "priority: qos %s preempts qos %s and has priority %d; stay below it", name, x.Name, o.Priority)
			}
		}
		return bound(d.qos.Len(), accounting.MaxQOS, "qualities of service")
	case *accounting.Quota:
		switch sub := x.Subject; {
		case sub.Account != "" && d.accounts.Get(sub.Account) == nil:
			return cluster.Errorf(cluster.CodeNotFound, "account %q is not known; see: berth account list", sub.Account)
		case sub.QOS != "" && d.qos.Get(sub.QOS) == nil:
			return noQOS(sub.QOS)
		}
		return bound(d.quotas.Len(), accounting.MaxQuotas, "quotas")
	}
	return nil
}

// checkParent refuses an account that would be its own ancestor, or too deep with
// its descendants.
func (d *Books) checkParent(x *accounting.Account) *cluster.Error {
	depth := 1
	if old := d.accounts.Get(x.Name); old != nil && old.Parent != x.Parent && d.rest.At().Version >= command.HomeVersion {
		depth = d.height(x.Name)
	}
	for name := x.Parent; name != ""; depth++ {
		a := d.accounts.Get(name)
		switch {
		case a == nil:
			return cluster.Errorf(cluster.CodeNotFound, "parent: account %q is not known; see: berth account list", name)
		case name == x.Name || depth > accounting.MaxAccountDepth:
			return cluster.Errorf(cluster.CodeInvalid, "parent: account %s would be below itself, or more than %d deep", x.Name, accounting.MaxAccountDepth)
		}
		name = a.Parent
	}
	return nil
}

// height returns the depth of the tree below an account, counting itself.
func (d *rules) height(name string) int {
	most := 1
	for _, a := range d.accounts.Rows() {
		n := 1
		for up := a; up != nil && up.Name != name; up = d.accounts.Get(up.Parent) {
			if n++; up.Parent == "" {
				n = 1
				break
			}
		}
		most = max(most, n)
	}
	return most
}

// onlyDefault clears the default mark of other rules of the kind if r has it.
func (d *Books) onlyDefault(index uint64, r conv.Ruling) {
	switch x := r.(type) {
	case *accounting.Member:
		first := true
		for a, m := range d.members.Rows() {
			if a.UID != x.UID || a.Account == x.Account {
				continue
			}
			first = false
			if x.Default && m.Default {
				less := *m
				less.Default, less.Revision = false, index
				d.putRuling(&less)
			}
		}
		x.Default = x.Default || first
	case *accounting.QOS:
		for _, o := range d.qos.Rows() {
			if x.Default && o.Default && o.Name != x.Name {
				less := *o
				less.Default, less.Revision = false, index
				d.putRuling(&less)
			}
		}
	}
}
