package fsm

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/proto/conv"
)

// registrar keeps accounts, users, qualities of service and quotas on cards, and reads
// through all of them to answer anything.
type registrar struct {
	t        *rapid.T
	m        *machine
	accounts map[string]accounting.Account
	members  map[accounting.Assoc]accounting.Member
	qos      map[string]accounting.QOS
	quotas   map[accounting.Subject]bool
	require  bool
	jobs     map[cluster.JobID]accounting.Holder // that have not ended
}

func (g *registrar) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(g.t, what) }

func (g *registrar) of(what string, names ...string) string {
	return rapid.SampledFrom(names).Draw(g.t, what)
}

func (g *registrar) account(what string) string { return g.of(what, "a", "b", "c") }

func (g *registrar) quality(what string) string { return g.of(what, "low", "mid", "high") }

// some are a few qualities of service, sorted.
func (g *registrar) some(what string) (out []string) {
	for _, q := range []string{"high", "low", "mid"} {
		if g.draw(what+" "+q, 5) == 0 {
			out = append(out, q)
		}
	}
	return out
}

// chain is an account with those above it, nearest first.
func (g *registrar) chain(name string) (out []string) {
	for name != "" {
		out = append(out, name)
		name = g.accounts[name].Parent
	}
	return out
}

// open counts the jobs that have not ended for which is holds.
func (g *registrar) open(is func(accounting.Holder) bool) (n int) {
	for _, h := range g.jobs {
		if is(h) {
			n++
		}
	}
	return n
}

// puts sets a rule, by the revision that it has or by a later one, and holds the answer
// against what is right. It reports whether the rule stands now.
func (g *registrar) puts(r conv.Ruling, want cluster.Code) bool {
	base := uint64(0)
	if old := g.m.f.st.books.Find(r); old != nil {
		base = revisionOf(old)
	}
	if g.draw("late", 20) == 0 {
		base, want = base+1, cluster.CodeConflict
	}
	return g.answers(g.m.do(setCmd(r, base))[0], want)
}

func (g *registrar) answers(r Result, want cluster.Code) bool {
	got := done
	if r.Err != nil {
		got = r.Err.Code
	}
	if got != want {
		g.t.Fatalf("%v, by the cards code %d; %+v", r.Err, want, *g)
	}
	return want == done
}

func (g *registrar) setAccount() {
	x := accounting.Account{Name: g.account("name"), Parent: g.of("parent", "", "a", "b", "c"), Shares: 1, QOS: g.some("allows"), DefaultQOS: g.of("usual", "", "", "low", "mid")}
	_, there := g.accounts[x.Parent]
	want := done
	switch {
	case x.Parent != "" && !there:
		want = cluster.CodeNotFound
	case slices.Contains(g.chain(x.Parent), x.Name):
		want = cluster.CodeInvalid
	}
	for _, q := range append(slices.Clone(x.QOS), x.DefaultQOS) {
		if _, known := g.qos[q]; q != "" && !known && want == done {
			want = cluster.CodeInvalid
		}
	}
	put := x
	if g.puts(&put, want) {
		g.accounts[x.Name] = x
	}
}

func (g *registrar) dropAccount() {
	name := g.account("name")
	g.limits(accounting.Subject{Account: name, User: true, UID: 1000}) // which goes with it
	_, there := g.accounts[name]
	want := done
	switch {
	case !there:
		want = cluster.CodeNotFound
	case g.open(func(h accounting.Holder) bool { return h.Account == name }) > 0:
		want = cluster.CodeConflict
	}
	for _, a := range g.accounts {
		if there && a.Parent == name {
			want = cluster.CodeConflict
		}
	}
	if g.answers(g.m.do(unsetCmd(&accounting.Account{Name: name, Shares: 1}))[0], want) {
		delete(g.accounts, name)
		maps.DeleteFunc(g.members, func(a accounting.Assoc, _ accounting.Member) bool { return a.Account == name })
		g.rehome(1000, "")
		g.rehome(1001, "")
		maps.DeleteFunc(g.quotas, func(s accounting.Subject, _ bool) bool { return s.Account == name })
	}
}

func (g *registrar) setMember() {
	x := accounting.Member{Account: g.account("of"), UID: cluster.UID(1000 + g.draw("uid", 2)), Shares: 1, Default: g.draw("default", 3) == 0, Coordinator: g.draw("coordinator", 3) == 0}
	want := done
	if _, there := g.accounts[x.Account]; !there {
		want = cluster.CodeNotFound
	}
	put := x
	if !g.puts(&put, want) {
		return
	}
	key := accounting.Assoc{Account: x.Account, UID: x.UID}
	only := true
	for k, o := range g.members {
		if k.UID == x.UID && k != key {
			only = false
			if x.Default {
				o.Default = false
				g.members[k] = o
			}
		}
	}
	x.Default = x.Default || only
	g.members[key] = x
	g.rehome(x.UID, x.Account)
}

// rehome gives a user without a default account the first by name, last of all the one
// that was just changed.
func (g *registrar) rehome(uid cluster.UID, last string) {
	var names []string
	for k, o := range g.members {
		if k.UID == uid {
			if o.Default {
				return
			}
			names = append(names, k.Account)
		}
	}
	slices.Sort(names)
	if i := slices.IndexFunc(names, func(n string) bool { return n != last }); i >= 0 {
		key := accounting.Assoc{Account: names[i], UID: uid}
		o := g.members[key]
		o.Default = true
		g.members[key] = o
	}
}

func (g *registrar) dropMember() {
	key := accounting.Assoc{Account: g.account("of"), UID: cluster.UID(1000 + g.draw("uid", 2))}
	g.limits(accounting.Subject{Account: key.Account, User: true, UID: key.UID})
	want := done
	if _, there := g.members[key]; !there {
		want = cluster.CodeNotFound
	}
	if g.answers(g.m.do(unsetCmd(&accounting.Member{Account: key.Account, UID: key.UID, Shares: 1}))[0], want) {
		delete(g.members, key)
		g.rehome(key.UID, "")
		delete(g.quotas, accounting.Subject{Account: key.Account, User: true, UID: key.UID})
	}
}

func (g *registrar) setQOS() {
	x := accounting.QOS{Name: g.quality("name"), Priority: int64(g.draw("priority", 4)), Preempts: g.some("preempts"), Default: g.draw("default", 3) == 0, Grace: time.Duration(g.draw("grace", 3)) * 90 * time.Second}
	want := done
	if slices.Contains(x.Preempts, x.Name) {
		want = cluster.CodeInvalid
	}
	for _, name := range x.Preempts {
		if o, known := g.qos[name]; !known || o.Priority >= x.Priority {
			want = cluster.CodeInvalid
		}
	}
	for _, o := range g.qos {
		if slices.Contains(o.Preempts, x.Name) && o.Priority <= x.Priority {
			want = cluster.CodeInvalid
		}
	}
	put := x
	if slices.Contains(x.Preempts, x.Name) { // that is seen before anything is looked up
		g.answers(g.m.do(setCmd(&put, 0))[0], want)
		return
	}
	if !g.puts(&put, want) {
		return
	}
	for name, o := range g.qos {
		o.Default = o.Default && !x.Default
		g.qos[name] = o
	}
	g.qos[x.Name] = x
}

func (g *registrar) dropQOS() {
	name := g.quality("name")
	g.limits(accounting.Subject{QOS: name, Each: g.draw("each", 2) == 0})
	_, there := g.qos[name]
	used := g.open(func(h accounting.Holder) bool { return h.QOS == name }) > 0
	for _, o := range g.qos {
		used = used || slices.Contains(o.Preempts, name)
	}
	for _, a := range g.accounts {
		used = used || a.DefaultQOS == name || slices.Contains(a.QOS, name)
	}
	want := done
	switch {
	case !there:
		want = cluster.CodeNotFound
	case used:
		want = cluster.CodeConflict
	}
	if g.answers(g.m.do(unsetCmd(&accounting.QOS{Name: name}))[0], want) {
		delete(g.qos, name)
		maps.DeleteFunc(g.quotas, func(s accounting.Subject, _ bool) bool { return s.QOS == name })
	}
}

// quota sets one, or takes it away.
func (g *registrar) quota() {
	s := accounting.Subject{Each: true}
	switch g.draw("of", 6) {
	case 0:
		s = accounting.Subject{User: true, UID: 1000}
	case 1:
		s = accounting.Subject{Account: g.account("of")}
	case 2, 3:
		s = accounting.Subject{Account: g.account("of"), User: true, UID: cluster.UID(1000 + g.draw("uid", 2))}
	case 4:
		s = accounting.Subject{QOS: g.quality("of"), Each: g.draw("each", 2) == 0}
	}
	if g.draw("remove", 6) == 0 {
		want := done
		if !g.quotas[s] {
			want = cluster.CodeNotFound
		}
		if g.answers(g.m.do(unsetCmd(quota(s, accounting.Limits{})))[0], want) {
			delete(g.quotas, s)
		}
		return
	}
	g.limits(s)
}

// limits sets a quota that is not small enough to keep a job out.
func (g *registrar) limits(s accounting.Subject) {
	want := done
	if _, there := g.accounts[s.Account]; s.Account != "" && !there {
		want = cluster.CodeNotFound
	} else if _, there := g.qos[s.QOS]; s.QOS != "" && !there {
		want = cluster.CodeInvalid
	}
	if g.puts(quota(s, accounting.Limits{Jobs: 1000}), want) {
		g.quotas[s] = true
	}
}

func (g *registrar) policy() {
	p := accounting.DefaultAccountPolicy()
	if p.Require = g.draw("require", 2) == 0; g.puts(&p, done) {
		g.require = p.Require
	}
}

// jobs are submitted, with names that the leader let pass a moment ago, or end.
func (g *registrar) job() {
	if ids := slices.Sorted(maps.Keys(g.jobs)); len(ids) > 0 && g.draw("ends", 2) == 0 {
		id := ids[g.draw("which", len(ids))]
		g.m.must(cancelCmd(id, 0))
		delete(g.jobs, id)
		return
	}
	h := accounting.Holder{Account: g.of("account", "", "a", "b", "c"), QOS: g.of("qos", "", "low", "mid", "high"), UID: 1000}
	_, account := g.accounts[h.Account]
	_, qos := g.qos[h.QOS]
	want := done
	if len(g.accounts) > 0 && h.Account != "" && !account || len(g.qos) > 0 && h.QOS != "" && !qos {
		want = cluster.CodeInvalid
	}
	id := g.m.f.NextJobID()
	if g.answers(g.m.do(submitCmd(id, id.String(), 1000, in(h.Account, h.QOS)))[0], want) {
		g.jobs[id] = h
	}
}

// enters is what the leader makes of a job before it is submitted; false is refused.
func (g *registrar) enters(uid cluster.UID, admin bool, s *cluster.Spec) bool {
	home := ""
	for k, m := range g.members {
		if k.UID == uid && m.Default {
			home = k.Account
		}
	}
	if len(g.accounts) > 0 {
		_, known := g.accounts[s.Account]
		_, in := g.members[accounting.Assoc{Account: s.Account, UID: uid}]
		switch {
		case s.Account == "" && home == "" && g.require && !admin, s.Account != "" && (!known || !in && !admin):
			return false
		case s.Account == "":
			s.Account = home
		}
	}
	if len(g.qos) == 0 {
		return true
	}
	var allowed []string
	usual := ""
	for _, name := range slices.Backward(g.chain(s.Account)) { // who is nearer has the last word
		if a := g.accounts[name]; len(a.QOS) > 0 {
			allowed = a.QOS
		}
		if a := g.accounts[name]; a.DefaultQOS != "" {
			usual = a.DefaultQOS
		}
	}
	for name, q := range g.qos {
		if usual == "" && q.Default && (len(allowed) == 0 || slices.Contains(allowed, name)) {
			usual = name
		}
	}
	if s.QOS == "" {
		s.QOS = usual
	}
	q, known := g.qos[s.QOS]
	if s.QOS == "" || !known || len(allowed) > 0 && !slices.Contains(allowed, s.QOS) {
		return s.QOS == ""
	}
	for _, o := range g.qos {
		if slices.Contains(o.Preempts, s.QOS) {
			s.Checkpoint = cluster.Checkpoint{Signal: "TERM", Grace: time.Minute}
			if q.Grace > 0 {
				s.Checkpoint.Grace = q.Grace
			}
		}
	}
	return true
}

// opens makes what most sites have: accounts below each other, users in several, three
// qualities of service.
func (g *registrar) opens() {
	for i, name := range []string{"low", "mid", "high"} {
		g.qos[name] = accounting.QOS{Name: name, Priority: int64(i)}
		g.m.must(setCmd(&accounting.QOS{Name: name, Priority: int64(i)}, 0))
	}
	parent := ""
	for _, name := range []string{"a", "b", "c"} {
		x := accounting.Account{Name: name, Parent: parent, Shares: 1, QOS: g.some("allows")}
		parent, g.accounts[name] = name, x
		g.m.must(setCmd(&x, 0))
		for uid := cluster.UID(1000); uid < 1002; uid++ {
			y := accounting.Member{Account: name, UID: uid, Shares: 1}
			g.m.must(setCmd(&y, 0))
			y.Default = name == "a" // the first one
			g.members[accounting.Assoc{Account: name, UID: uid}] = y
		}
	}
}

// check holds the cards against the machine.
func (g *registrar) check() {
	d := g.m.f.Standing(0)
	same := len(d.Accounts) == len(g.accounts) && len(d.Members) == len(g.members) && len(d.QOS) == len(g.qos) && len(d.Quotas) == len(g.quotas)
	for k, x := range g.members {
		o := d.Members[k]
		same = same && o != nil && o.Default == x.Default && o.Coordinator == x.Coordinator
	}
	for name, x := range g.qos {
		o := d.QOS[name]
		same = same && o != nil && o.Default == x.Default && o.Priority == x.Priority && slices.Equal(o.Preempts, x.Preempts)
	}
	for s := range g.quotas {
		same = same && d.Quotas[s] != nil
	}
	if !same {
		g.t.Fatalf("there are %v, %v, %v, %v, by the cards %+v", d.Accounts, d.Members, d.QOS, d.Quotas, *g)
	}
	for _, account := range []string{"", "a", "b", "c"} {
		if _, there := g.accounts[account]; there && !slices.Equal(g.m.f.AccountsFrom(account), g.chain(account)) {
			g.t.Fatalf("above %s are %v, by the cards %v", account, g.m.f.AccountsFrom(account), g.chain(account))
		}
		for uid := cluster.UID(1000); uid < 1002; uid++ {
			leads := slices.ContainsFunc(g.chain(account), func(a string) bool { return g.members[accounting.Assoc{Account: a, UID: uid}].Coordinator })
			if g.m.f.Coordinates(uid, account) != leads {
				g.t.Fatalf("user %d coordinates %q: %t, by the cards %t", uid, account, !leads, leads)
			}
			for _, qos := range []string{"", "low", "mid"} {
				admin := uid == 1001 && qos == ""
				got, want := in(account, qos), in(account, qos)
				err, lets := g.m.f.EnterStanding(cluster.Owner{UID: uid}, admin, got), g.enters(uid, admin, want)
				if (err == nil) != lets || lets && (got.Account != want.Account || got.QOS != want.QOS || got.Checkpoint != want.Checkpoint) {
					g.t.Fatalf("user %d, administrator %t, enters %q, %q: %v as %q, %q, %+v; by the cards %t as %q, %q, %+v; %+v",
						uid, admin, account, qos, err, got.Account, got.QOS, got.Checkpoint, lets, want.Account, want.QOS, want.Checkpoint, *g)
				}
			}
		}
	}
}

// TestRulesByTheCards: whatever accounts, users, qualities of service and quotas are
// made, changed and removed, in whatever order and beside jobs: those are there that a
// registrar has cards of, and each job enters the account and the quality of service,
// or is turned away, as one finds who reads all cards.
func TestRulesByTheCards(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &registrar{
			t: t, m: newMachine(t), accounts: map[string]accounting.Account{}, members: map[accounting.Assoc]accounting.Member{}, qos: map[string]accounting.QOS{},
			quotas: map[accounting.Subject]bool{}, jobs: map[cluster.JobID]accounting.Holder{},
		}
		g.m.must(initCmd("c1", 1000))
		if g.draw("a site", 3) > 0 {
			g.opens()
		}
		steps := []func(){
			g.setAccount, g.setAccount, g.setAccount, g.setAccount, g.setMember, g.setMember, g.setMember, g.setQOS, g.setQOS, g.setQOS,
			g.quota, g.quota, g.quota, g.quota, g.job, g.policy, g.dropAccount, g.dropAccount, g.dropMember, g.dropQOS, g.dropQOS,
		}
		for range rapid.IntRange(10, 50).Draw(t, "steps") {
			steps[g.draw("step", len(steps))]()
			g.check()
		}
		g.m.f = restored(t, snapshotOf(t, g.m.f))
		g.check()
	})
}
