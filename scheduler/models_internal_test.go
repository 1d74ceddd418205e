package scheduler

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
)

// nfair is an account or, without below, a user, as Fair Tree is told in prose.
type nfair struct {
	who    cluster.Assoc
	shares int64
	used   int64 // of a user; of an account what former users of it had
	below  []*nfair
	user   bool
}

// all is what was used by it and below it.
func (n *nfair) all() int64 {
	sum := n.used
	for _, b := range n.below {
		sum += b.all()
	}
	return sum
}

// share is use over shares, exactly.
func (n *nfair) share() *big.Rat { return big.NewRat(n.all(), n.shares) }

// places numbers the users: of siblings those first that had least of what they
// claim, all below one before all of the next; equals share a place, and those below
// equals are siblings.
func places(siblings []*nfair, next *int32, out map[cluster.Assoc]int32) {
	for len(siblings) > 0 {
		low := siblings[0].share()
		for _, s := range siblings {
			if s.share().Cmp(low) < 0 {
				low = s.share()
			}
		}
		var below, rest []*nfair
		users := false
		for _, s := range siblings {
			switch {
			case s.share().Cmp(low) != 0:
				rest = append(rest, s)
			case s.user:
				if !users {
					*next++
				}
				users = true
				out[s.who] = *next
			default:
				below = append(below, s.below...)
			}
		}
		places(below, next, out)
		siblings = rest
	}
}

// TestFairTreeAsNaive holds any tree of accounts against the recursion over exact
// fractions.
func TestFairTreeAsNaive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		accounts, members := map[string]*cluster.Account{}, map[cluster.Assoc]*cluster.Member{}
		nodes := map[string]*nfair{}
		var roots []*nfair
		names := []string{"a", "b", "c", "d", "e"}
		for i, name := range names[:rapid.IntRange(1, len(names)).Draw(t, "accounts")] {
			shares := rapid.Int64Range(1, 4).Draw(t, "shares")
			parent := ""
			if i > 0 && rapid.Bool().Draw(t, "below") {
				parent = names[rapid.IntRange(0, i-1).Draw(t, "parent")]
			}
			accounts[name] = &cluster.Account{Name: name, Parent: parent, Shares: shares}
			nodes[name] = &nfair{shares: shares}
			if parent == "" {
				roots = append(roots, nodes[name])
			} else {
				nodes[parent].below = append(nodes[parent].below, nodes[name])
			}
		}
		users := map[cluster.Assoc]*nfair{}
		for uid := range cluster.UID(rapid.IntRange(1, 8).Draw(t, "users")) {
			who := cluster.Assoc{Account: names[rapid.IntRange(0, len(accounts)-1).Draw(t, "of")], UID: uid}
			shares := rapid.Int64Range(1, 3).Draw(t, "user's shares")
			members[who] = &cluster.Member{Shares: shares}
			users[who] = &nfair{who: who, shares: shares, user: true}
			nodes[who.Account].below = append(nodes[who.Account].below, users[who])
		}
		f := NewFairTree(accounts, members)
		for range rapid.IntRange(0, 12).Draw(t, "uses") {
			who := cluster.Assoc{Account: names[rapid.IntRange(0, len(accounts)-1).Draw(t, "account")], UID: cluster.UID(rapid.IntRange(0, 9).Draw(t, "uid"))}
			used := rapid.Int64Range(0, 60).Draw(t, "used")
			f.Add(who, cluster.GPUTime(used))
			if u := users[who]; u != nil {
				u.used += used
			} else { // whoever it was has left the account
				nodes[who.Account].used += used
			}
		}
		want, last := map[cluster.Assoc]int32{}, int32(0)
		places(roots, &last, want)
		o := f.Order()
		for who := range users {
			if o.Place(who) != want[who] {
				t.Fatalf("%v has place %d, want %d of %v", who, o.Place(who), want[who], want)
			}
		}
		if o.Of != last {
			t.Fatalf("%d places, want %d", o.Of, last)
		}
		for name, n := range nodes {
			if f.Used(name) != cluster.GPUTime(n.all()) {
				t.Fatalf("account %s used %d, want %d", name, f.Used(name), n.all())
			}
		}
	})
}

// TestGrowthAsDefined: by how much fragmentation grows is the difference of the
// measure before and after (Weng et al., ATC 2023, equations 1 to 4), each worked out
// from nothing: for each shape all that is idle if the node cannot run it, else what
// is idle on the cards that cannot.
func TestGrowthAsDefined(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var mix Mix
		var shapes []Shape
		unable := int64(rapid.IntRange(0, 3).Draw(t, "unable"))
		mix.AddUnable(unable)
		for range rapid.IntRange(1, 6).Draw(t, "shapes") {
			s := Shape{
				GPUs: rapid.IntRange(1, 3).Draw(t, "gpus"), Alone: rapid.Bool().Draw(t, "alone"), Mem: rapid.Int64Range(1, 20).Draw(t, "mem") * 50,
				Milli: rapid.Int64Range(1, 20).Draw(t, "milli") * 50, CPUMilli: rapid.Int64Range(0, 8).Draw(t, "cores") * 1000, HostMiB: rapid.Int64Range(0, 8).Draw(t, "host") << 12,
			}
			if s.Alone {
				s.Mem, s.Milli = 1000, 1000
			}
			shapes = append(shapes, s)
			mix.Add(s, 1)
		}
		typical := mix.Typical()
		if n := int64(len(shapes)) + unable; typical.Total() != n {
			t.Fatalf("stands for %d jobs, there are %d", typical.Total(), n)
		}
		var cards []CardLeft
		for range rapid.IntRange(1, 4).Draw(t, "cards") {
			c := CardLeft{Mem: rapid.Int64Range(0, 20).Draw(t, "free mem") * 50, Milli: rapid.Int64Range(0, 20).Draw(t, "free milli") * 50, Takes: rapid.Bool().Draw(t, "takes")}
			if rapid.Bool().Draw(t, "empty") {
				c = CardLeft{Mem: 1000, Milli: 1000, Takes: true, Empty: true}
			}
			cards = append(cards, c)
		}
		cpu, host := rapid.Int64Range(0, 10).Draw(t, "free cores")*1000, rapid.Int64Range(0, 10).Draw(t, "free host")<<12
		takes := rapid.Int64Range(0, 3).Draw(t, "takes cores") * 1000
		i := rapid.IntRange(0, len(cards)-1).Draw(t, "on")
		was := cards[i]
		is := was.After(&Shape{GPUs: 1, Mem: 200, Milli: 300}, false)
		var m Measure
		typical.Measure(&m, cpu, host, cards)
		before := fragmentsOf(shapes, unable, cpu, host, cards)
		after := slices.Clone(cards)
		after[i] = CardLeft{Mem: max(0, was.Mem-200), Milli: max(0, was.Milli-300), Takes: was.Takes}
		want := (fragmentsOf(shapes, unable, cpu-takes, host, after) - before) / typical.Total()
		if got := typical.Growth(&m, cpu-takes, host, []CardLeft{was}, []CardLeft{is}); got != want {
			t.Fatalf("grows by %d, want %d", got, want)
		}
	})
}

func fragmentsOf(shapes []Shape, unable, cpu, host int64, cards []CardLeft) (sum int64) {
	idle := func(c CardLeft) int64 { return max(c.Mem, c.Milli) }
	all := int64(0)
	for _, c := range cards {
		all += idle(c)
	}
	sum = unable * all
	for _, s := range shapes {
		n, usable := 0, int64(0)
		for _, c := range cards {
			if c.Takes && (s.Alone && c.Empty || !s.Alone && c.Mem >= s.Mem && c.Milli >= s.Milli) {
				n, usable = n+1, usable+idle(c)
			}
		}
		if n < s.GPUs || cpu < s.CPUMilli || host < s.HostMiB {
			usable = 0
		}
		sum += all - usable
	}
	return sum
}

// TestTypicalCoversNineteenInTwenty: of the popular shapes, the most popular first,
// as many as cover 95 % of the jobs, and at most 32.
func TestTypicalCoversNineteenInTwenty(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		weights []int64
		want    []int64
	}{
		{"all that there are", []int64{3, 2, 1}, []int64{3, 2, 1}},
		{"the popular first", []int64{1, 2, 3}, []int64{3, 2, 1}},
		{"19 of 20 are enough", []int64{19, 1}, []int64{19}},
		{"94 of 100 are not", []int64{94, 6}, []int64{94, 6}},
		{"95 of 100 are", []int64{95, 5}, []int64{95}},
		{"what was taken back is none", []int64{5, 0, 1}, []int64{5, 1}},
	} {
		var mix Mix
		for i, w := range c.weights {
			mix.Add(Shape{GPUs: 1, Mem: int64(i+1) * 100, Milli: 100}, w)
		}
		typical := mix.Typical()
		var got []int64
		for k := range typical.Shapes() {
			got = append(got, typical.Weight(k))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: weights %v, want %v", c.name, got, c.want)
		}
	}
	var many Mix
	for i := range 50 {
		many.Add(Shape{GPUs: 1, Mem: 50 + int64(i%20)*50, Milli: 50 + int64(i/20)*50, CPUMilli: int64(i) * 1000}, 1)
	}
	if typical := many.Typical(); len(typical.Shapes()) != 32 {
		t.Errorf("%d shapes of 50, want 32", len(typical.Shapes()))
	}
	var near Mix // within a step of 50 thousandths they are one, with the mean
	near.Add(Shape{GPUs: 1, Mem: 101, Milli: 50}, 1)
	near.Add(Shape{GPUs: 1, Mem: 149, Milli: 50}, 1)
	near.Add(Shape{GPUs: 1, Mem: 151, Milli: 50}, 1)
	if typical := near.Typical(); len(typical.Shapes()) != 2 || typical.Shapes()[0].Mem != 125 || typical.Shapes()[1].Mem != 151 {
		t.Errorf("shapes %+v, want 125 twice and 151", typical.Shapes())
	}
}

// TestRoomOfQuotasAsNaive: with whatever limits and runs, a quota has room at the
// least of the ends at which what is left and the job are within it.
func TestRoomOfQuotasAsNaive(t *testing.T) {
	t.Parallel()
	now := cluster.Time(1_700_000_000_000_000)
	rapid.Check(t, func(t *rapid.T) {
		u := cluster.Subject{User: true, UID: 1}
		l := cluster.Limits{GPUMilli: rapid.Int64Range(1, 8).Draw(t, "thousands") * 500, Running: int64(rapid.IntRange(0, 4).Draw(t, "running"))}
		lim := cluster.NewLimiter(nil, map[cluster.Subject]*cluster.Quota{u: {Subject: u, Limits: l}}, nil)
		snap := &cluster.Snapshot{Now: now, Limits: lim}
		type run struct {
			milli int64
			ends  time.Duration
			mine  bool
		}
		var runs []run
		for id := range cluster.JobID(rapid.IntRange(0, 6).Draw(t, "jobs")) {
			r := run{rapid.Int64Range(1, 4).Draw(t, "halves") * 500, time.Duration(rapid.IntRange(1, 99).Draw(t, "minutes")) * time.Minute, rapid.IntRange(0, 3).Draw(t, "whose") > 0}
			runs = append(runs, r)
			j := &cluster.Job{ID: id + 1, State: cluster.JobRunning, Owner: cluster.Owner{UID: 2}, Spec: &cluster.Spec{GPUs: 1, TimeLimit: r.ends},
				Attempts: []cluster.Attempt{{No: 1, State: cluster.JobRunning, Started: now, Placed: now, GPUMilli: r.milli, Berth: cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: "g", Share: cluster.Share{Milli: r.milli}}}}}}}
			if r.mine {
				j.Owner.UID = 1
				lim.Count(cluster.HolderOf(j), 1, 1, r.milli)
			}
			snap.Running = append(snap.Running, j)
		}
		wants := rapid.Int64Range(1, 4).Draw(t, "wants") * 500
		job := &cluster.Job{ID: 99, Owner: cluster.Owner{UID: 1}, Spec: &cluster.Spec{GPUs: 1}}
		room, ok := LimitRoom(snap, job, wants, 0, Default())
		// The least instant at which it would be let in.
		instants := []time.Duration{0}
		for _, r := range runs {
			if r.mine {
				instants = append(instants, r.ends)
			}
		}
		slices.Sort(instants)
		want, found := time.Duration(0), false
		for _, at := range instants {
			held, running := int64(0), int64(0)
			for _, r := range runs {
				if r.mine && r.ends > at {
					held, running = held+r.milli, running+1
				}
			}
			if held+wants <= l.GPUMilli && (l.Running == 0 || running < l.Running) {
				want, found = at, true
				break
			}
		}
		if ok != found || ok && (room.P50.Sub(now) != want || room.P90.Sub(now) != want) {
			t.Fatalf("room in %s to %s (%t), want in %s (%t)", room.P50.Sub(now), room.P90.Sub(now), ok, want, found)
		}
	})
}

// TestUseThatDecays: a budget that halves every day, and what runs until then counts.
func TestUseThatDecays(t *testing.T) {
	t.Parallel()
	now := cluster.Time(1_700_000_000_000_000)
	u := cluster.Subject{User: true, UID: 1}
	hour := cluster.GPUTime(time.Hour.Microseconds())
	for _, c := range []struct {
		name string
		used cluster.GPUTime
		runs time.Duration // of one card, by its limit
		want time.Duration
	}{
		{"just spent", 10 * hour, 0, 0}, {"twice as much", 20 * hour, 0, 24 * time.Hour}, {"four times", 40 * hour, 0, 48 * time.Hour},
		{"ten hours more run", 10 * hour, 10 * time.Hour, 24 * time.Hour}, {"thirty more", 10 * hour, 30 * time.Hour, 48 * time.Hour},
	} {
		lim := cluster.NewLimiter(nil, map[cluster.Subject]*cluster.Quota{u: {Subject: u, Limits: cluster.Limits{GPUTime: 10 * hour}}},
			func(cluster.Subject, cluster.Period) cluster.GPUTime { return c.used })
		snap := &cluster.Snapshot{Now: now, Limits: lim}
		if c.runs > 0 {
			snap.Running = []*cluster.Job{{ID: 1, State: cluster.JobRunning, Owner: cluster.Owner{UID: 1}, Spec: &cluster.Spec{GPUs: 1, TimeLimit: c.runs},
				Attempts: []cluster.Attempt{{No: 1, State: cluster.JobRunning, Started: now, Placed: now, GPUMilli: cluster.WholeGPU, Berth: cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: "g", Share: cluster.Share{Milli: 1000}}}}}}}}
		}
		room, ok := LimitRoom(snap, &cluster.Job{ID: 9, Owner: cluster.Owner{UID: 1}, Spec: &cluster.Spec{GPUs: 1}}, 1000, 24*time.Hour, Default())
		if got := room.P50.Sub(now); !ok || got < c.want || got > c.want+2*time.Second {
			t.Errorf("%s: room in %s (%t), want %s", c.name, got, ok, c.want)
		}
	}
}
