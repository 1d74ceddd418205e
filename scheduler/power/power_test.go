package power

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

var _ = draws.Fixed()

const now = schedtest.Now

func hosts(t interface{ Fatal(...any) }, text string) cluster.HostList {
	h, err := cluster.ParseHostList(text)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// running has a job on nodes.
func running(id cluster.JobID, nodes ...cluster.NodeID) *cluster.Job {
	j := schedtest.Job(id, schedtest.Nodes(len(nodes)))
	a := cluster.Attempt{No: 1, State: cluster.JobRunning, Berth: cluster.Berth{Node: nodes[0]}}
	if len(nodes) > 1 {
		a.Gang = &cluster.Gang{Parts: make([]cluster.Part, len(nodes))}
		for _, n := range nodes[1:] {
			a.Gang.Rest = append(a.Gang.Rest, cluster.Berth{Node: n})
		}
	}
	j.State, j.Attempts = cluster.JobRunning, []cluster.Attempt{a}
	return j
}

// all lets every node go down that is idle for long enough.
func all(*cluster.Node) bool { return true }

func powered(s cluster.PowerState) schedtest.NodeOption {
	return func(n *cluster.Node) { n.Power.State = s }
}

// site is four nodes with a card each.
func site(opts ...schedtest.NodeOption) *dispatch.Snapshot {
	s := &dispatch.Snapshot{Now: now, Queues: map[cluster.GPUID][]dispatch.Waiter{}}
	for i := range 4 {
		n := schedtest.Node(cluster.NodeID(fmt.Sprint("n", i+1)), 1, "T4")
		if i == 0 {
			for _, o := range opts {
				o(n)
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

func TestDown(t *testing.T) {
	t.Parallel()
	rule := func(change func(*Rule)) Rule {
		r := Rule{Idle: 10 * time.Minute, ResumeTimeout: 5 * time.Minute, AtOnce: 10}
		if change != nil {
			change(&r)
		}
		return r
	}
	window := func(after time.Duration, change func(*dispatch.Reservation)) *dispatch.Snapshot {
		s, r := site(), &dispatch.Reservation{Name: "r", Start: now.Add(10 * time.Minute).Add(after), Duration: time.Hour, Nodes: hosts(t, "n1")}
		if change != nil {
			change(r)
		}
		s.Reservations = dispatch.Reservations{r}
		return s
	}
	ran := site()
	ran.Running = []*cluster.Job{running(1, "n1")}
	gang := site()
	gang.Running = []*cluster.Job{running(1, "n2", "n1")}
	waits := site()
	waits.Queues["n1-00"] = []dispatch.Waiter{{Job: 1}}
	parted := site()
	parted.Partitions = []*cluster.Partition{{Name: "a", Nodes: hosts(t, "n[3-4]")}, {Name: "b", Nodes: hosts(t, "n2")}}
	for name, c := range map[string]struct {
		rule Rule
		snap *dispatch.Snapshot
		used string
		want []cluster.NodeID
	}{
		"all are idle":                        {rule(nil), site(), "", []cluster.NodeID{"n1", "n2", "n3", "n4"}},
		"some are to stay":                    {rule(func(r *Rule) { r.KeepIdle = 3 }), site(), "", []cluster.NodeID{"n1"}},
		"more are to stay than there are":     {rule(func(r *Rule) { r.KeepIdle = 9 }), site(), "", nil},
		"one is excluded":                     {rule(func(r *Rule) { r.Exclude = hosts(t, "n[1-2]") }), site(), "", []cluster.NodeID{"n3", "n4"}},
		"who is excluded is not who stays up": {rule(func(r *Rule) { r.Exclude, r.KeepIdle = hosts(t, "n[1-2]"), 1 }), site(), "", []cluster.NodeID{"n3"}},
		"of one partition":                    {rule(func(r *Rule) { r.Partitions = []string{"a"} }), parted, "", []cluster.NodeID{"n3", "n4"}},
		"a job runs":                          {rule(nil), ran, "", []cluster.NodeID{"n2", "n3", "n4"}},
		"a part of one does":                  {rule(nil), gang, "", []cluster.NodeID{"n3", "n4"}},
		"who has a job does not stay idle":    {rule(func(r *Rule) { r.KeepIdle = 2 }), ran, "", []cluster.NodeID{"n2"}},
		"somebody waits for its card":         {rule(nil), waits, "", []cluster.NodeID{"n2", "n3", "n4"}},
		"somebody is planned there":           {rule(nil), site(), "n1", []cluster.NodeID{"n2", "n3", "n4"}},
		"drained":                             {rule(nil), site(schedtest.Drained), "", []cluster.NodeID{"n2", "n3", "n4"}},
		"silent":                              {rule(nil), site(schedtest.Silent), "", []cluster.NodeID{"n2", "n3", "n4"}},
		"going down":                          {rule(nil), site(powered(cluster.PoweringDown)), "", []cluster.NodeID{"n2", "n3", "n4"}},
		"it failed a moment ago":              {rule(nil), site(func(n *cluster.Node) { n.Power.NotBefore = now.Add(time.Hour) }), "", []cluster.NodeID{"n2", "n3", "n4"}},
		"it failed a while ago":               {rule(nil), site(func(n *cluster.Node) { n.Power.NotBefore = now.Add(time.Minute) }), "", []cluster.NodeID{"n1", "n2", "n3", "n4"}},
		"a reservation is open":               {rule(nil), window(-time.Minute, nil), "", []cluster.NodeID{"n2", "n3", "n4"}},
		"one opens soon":                      {rule(nil), window(5*time.Minute, nil), "", []cluster.NodeID{"n2", "n3", "n4"}},
		"one opens later":                     {rule(nil), window(5*time.Minute+1000, nil), "", []cluster.NodeID{"n1", "n2", "n3", "n4"}},
		"one is over":                         {rule(nil), window(-2*time.Hour, nil), "", []cluster.NodeID{"n1", "n2", "n3", "n4"}},
		"one is for maintenance":              {rule(nil), window(0, func(r *dispatch.Reservation) { r.Maint = true }), "", []cluster.NodeID{"n1", "n2", "n3", "n4"}},
		"one is of a card there":              {rule(nil), window(0, func(r *dispatch.Reservation) { r.GPUs = []cluster.GPUID{"n1-00"} }), "", []cluster.NodeID{"n2", "n3", "n4"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			used := map[cluster.NodeID]struct{}{}
			if c.used != "" {
				used[cluster.NodeID(c.used)] = struct{}{}
			}
			var idle Idle
			snap := *c.snap
			idle.Look(&snap, &c.rule, used)
			if got := idle.Down(&snap, &c.rule, 10, all); len(got) > 0 {
				t.Errorf("%v are powered down at once", got)
			}
			snap.Now = now.Add(10 * time.Minute)
			idle.Look(&snap, &c.rule, used)
			if d := cmp.Diff(c.want, idle.Down(&snap, &c.rule, 10, all)); d != "" {
				t.Error(d)
			}
			if got := idle.Down(&snap, &c.rule, 1, all); len(c.want) > 0 && !slices.Equal(got, c.want[:1]) {
				t.Errorf("one at most: %v", got)
			}
		})
	}
}

// TestIdleSinceItsJobEnded: the time counts anew each time.
func TestIdleSinceItsJobEnded(t *testing.T) {
	t.Parallel()
	r, snap := &Rule{Idle: 10 * time.Minute, AtOnce: 10, KeepIdle: 3}, site()
	var idle Idle
	at := func(d time.Duration, busy ...cluster.NodeID) []cluster.NodeID {
		snap.Now, snap.Running = now.Add(d), nil
		for i, n := range busy {
			snap.Running = append(snap.Running, running(cluster.JobID(i+1), n))
		}
		idle.Look(snap, r, nil)
		return idle.Down(snap, r, 10, all)
	}
	at(0)
	at(9*time.Minute, "n1", "n2")
	at(9*time.Minute+time.Second, "n2")
	if got := at(10 * time.Minute); !slices.Equal(got, []cluster.NodeID{"n3"}) {
		t.Errorf("%v, want the one that was idle longest", got)
	}
	for after, want := range map[time.Duration]time.Duration{0: 10 * time.Minute, 10 * time.Minute: 19*time.Minute + time.Second, 20 * time.Minute: 0} {
		if got := idle.Next(r, now.Add(after)); got != 0 && got.Sub(now) != want || (got == 0) != (want == 0) {
			t.Errorf("after %s: next at %v, want %s", after, got.Sub(now), want)
		}
	}
}

func TestUp(t *testing.T) {
	t.Parallel()
	r := &Rule{ResumeTimeout: 5 * time.Minute}
	snap := site()
	for _, n := range snap.Nodes {
		n.State, n.Power.State = cluster.NodeUnreachable, cluster.PoweredDown
	}
	snap.Nodes[2].Power.State = cluster.PoweringUp
	snap.Nodes[3].Power.Asked = true
	snap.Reservations = dispatch.Reservations{{Name: "r", Start: now.Add(5 * time.Minute), Duration: time.Hour, Nodes: hosts(t, "n[2-4]")}}
	if d := cmp.Diff([]cluster.NodeID{"n1", "n2"}, Up(snap, r, []cluster.NodeID{"n1", "n3", "n4"}, 10)); d != "" {
		t.Error(d)
	}
	if got := Up(snap, r, []cluster.NodeID{"n1"}, 1); !slices.Equal(got, []cluster.NodeID{"n1"}) {
		t.Errorf("one at most: %v", got)
	}
	if got := Up(snap, r, []cluster.NodeID{"n1"}, 0); len(got) > 0 {
		t.Errorf("none any more: %v", got)
	}
	snap.Now = now.Add(-time.Microsecond)
	if got := Up(snap, r, nil, 10); len(got) > 0 {
		t.Errorf("%v are up before it is time", got)
	}
}

func TestConcerns(t *testing.T) {
	t.Parallel()
	snap := site()
	snap.Running = []*cluster.Job{running(1, "n1", "n2", "n3", "n4")}
	if Concerns(snap) {
		t.Error("there is nothing to decide, all nodes are in use")
	}
	snap.Nodes[0].State = cluster.NodeUnreachable
	if Concerns(snap) {
		t.Error("one that is lost is none to decide about")
	}
	snap.Nodes[0].Power.State = cluster.PoweredDown
	if !Concerns(snap) {
		t.Error("one is off that could be woken")
	}
	snap.Nodes[0].Power.State, snap.Running = cluster.PowerUp, []*cluster.Job{running(1, "n1", "n2", "n3")}
	if !Concerns(snap) {
		t.Error("one is idle")
	}
}

func TestPaced(t *testing.T) {
	t.Parallel()
	var p Paced
	for i, c := range []struct {
		after time.Duration
		room  int
	}{{0, 2}, {30 * time.Second, 1}, {time.Minute - 1000, 0}, {time.Minute, 1}, {90*time.Second - 1000, 0}, {90 * time.Second, 1}} {
		if got := p.Room(2, now.Add(c.after)); got != c.room {
			t.Errorf("%d: room for %d after %s, want %d", i, got, c.after, c.room)
		}
		if c.room > 0 && i != 5 {
			p.Did(now.Add(c.after))
		}
	}
}

// TestWhoIsPoweredDown: whatever happens, none that has a job or is planned on, none that
// is excluded, reserved or waited for, none that was not idle all the time, and as many
// idle ones stay as are to.
func TestWhoIsPoweredDown(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		some := func(what string) (out []cluster.NodeID) {
			for i := range 4 {
				if rapid.IntRange(0, 4).Draw(t, what) == 0 {
					out = append(out, cluster.NodeID(fmt.Sprint("n", i+1)))
				}
			}
			return out
		}
		r := Rule{
			Idle: time.Duration(rapid.IntRange(1, 4).Draw(t, "idle")) * time.Minute, ResumeTimeout: time.Minute,
			KeepIdle: rapid.IntRange(0, 3).Draw(t, "keep"),
		}
		if rapid.Bool().Draw(t, "exclude") {
			r.Exclude = hosts(t, "n1")
		}
		var idle Idle
		free := map[cluster.NodeID]int{} // looks since it was not idle
		for look := range rapid.IntRange(1, 10).Draw(t, "looks") {
			snap := site()
			snap.Now = now.Add(time.Duration(look) * time.Minute)
			not := map[cluster.NodeID]struct{}{}
			for i, id := range some("busy") {
				snap.Running = append(snap.Running, running(cluster.JobID(i+1), id))
				not[id] = struct{}{}
			}
			for _, id := range some("awaited") {
				snap.Queues[schedtest.GPU(id, 0)] = []dispatch.Waiter{{Job: 9}}
				not[id] = struct{}{}
			}
			for _, id := range some("down") {
				snap.Nodes[id[1]-'1'].Power.State = cluster.PoweringDown
				not[id] = struct{}{}
			}
			for i, id := range some("reserved") {
				snap.Reservations = append(snap.Reservations, &dispatch.Reservation{Name: fmt.Sprint("r", i), Start: snap.Now.Add(time.Minute), Duration: time.Hour, Nodes: hosts(t, string(id))})
				not[id] = struct{}{}
			}
			used := map[cluster.NodeID]struct{}{}
			for _, id := range some("planned") {
				used[id], not[id] = struct{}{}, struct{}{}
			}
			idle.Look(snap, &r, used)
			most := rapid.IntRange(0, 4).Draw(t, "most")
			got := idle.Down(snap, &r, most, all)
			stay := 0
			for _, n := range snap.Nodes {
				if _, ok := not[n.ID]; ok {
					free[n.ID] = 0
				} else {
					free[n.ID]++
				}
				goes := slices.Contains(got, n.ID)
				if free[n.ID] > 0 && !r.Exclude.Holds(n.ID) && !goes {
					stay++
				}
				if goes && (r.Exclude.Holds(n.ID) || time.Duration(free[n.ID]-1)*time.Minute < r.Idle) {
					t.Fatalf("look %d: %s goes down, and was idle for %d looks", look, n.ID, free[n.ID])
				}
			}
			if len(got) > most || len(got) > 0 && stay < r.KeepIdle {
				t.Fatalf("look %d: %v go down, %d idle ones stay", look, got, stay)
			}
		}
	})
}
