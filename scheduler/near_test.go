package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// sockets puts the GPUs of a node into NUMA groups of the given size.
func sockets(size int) NodeOption {
	return func(n *cluster.Node) {
		for i := range n.GPUs {
			n.GPUs[i].NUMA = i / size
		}
	}
}

func TestGangsStayTogether(t *testing.T) {
	t.Parallel()
	h := time.Hour
	pair := func(opts ...JobOption) *cluster.Job {
		return Job(1, append([]JobOption{GPUs(2), Exclusive, Lasts(h)}, opts...)...)
	}
	for _, c := range []struct {
		name string
		busy []cluster.GPUID
		job  *cluster.Job
		want []cluster.GPUID
	}{
		{"the smaller group that holds it", []cluster.GPUID{"n1-05", "n1-06"}, pair(), []cluster.GPUID{"n1-04", "n1-07"}},
		{"one group, though earlier cards are free", []cluster.GPUID{"n1-01", "n1-02", "n1-03"}, pair(), []cluster.GPUID{"n1-04", "n1-05"}},
		{"none holds it: it waits", []cluster.GPUID{"n1-01", "n1-02", "n1-03", "n1-05", "n1-06", "n1-07"}, pair(), nil},
		{"until a tenth of its run has passed", []cluster.GPUID{"n1-01", "n1-02", "n1-03", "n1-05", "n1-06", "n1-07"}, pair(Waited(7 * time.Minute)), []cluster.GPUID{"n1-00", "n1-04"}},
		{"no group could ever hold it", []cluster.GPUID{"n1-07"}, pair(GPUs(5)), []cluster.GPUID{"n1-00", "n1-01", "n1-02", "n1-03", "n1-04"}},
		{"a deadline does not wait", []cluster.GPUID{"n1-01", "n1-02", "n1-03", "n1-05", "n1-06", "n1-07"}, pair(dueIn(2 * h)), []cluster.GPUID{"n1-00", "n1-04"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 8, a100, sockets(4))})
			for i, g := range c.busy {
				running(w, Job(cluster.JobID(50+i), Lasts(h)), g, whole(80000))
			}
			w.Submit(c.job)
			p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
			var got []cluster.GPUID
			for _, s := range p.Starts {
				for _, g := range s.Berth.GPUs {
					got = append(got, g.GPU)
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("GPUs (-want +got):\n%s", d)
			}
			if c.want == nil && (len(p.Unplaced) != 1 || !strings.Contains(p.Unplaced[0].Reason.Detail, "2 GPUs of one NUMA group are not free on any node; takes GPUs of several in ~6 min")) {
				t.Errorf("unplaced %+v", p.Unplaced)
			}
		})
	}
}

// TestGangsWaitForNeighboursNotForEver: with groups or without, a gang that
// fits somewhere starts within NearAge and a tenth of its run, starts fit, and
// the order of nodes does not matter.
func TestGangsWaitForNeighboursNotForEver(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pol := scheduler.Default()
		size := rapid.IntRange(1, 4).Draw(t, "group")
		nodes := []*cluster.Node{Node("n1", 8, a100, sockets(size)), Node("n2", 8, a100, sockets(size))}
		w := NewWorld(nodes)
		busy := 0
		for i := range 16 {
			if rapid.Bool().Draw(t, "busy") {
				busy++
				running(w, Job(cluster.JobID(50+i), Lasts(100*time.Hour)), GPU(nodes[i/8].ID, i%8), whole(80000))
			}
		}
		n := rapid.IntRange(2, 8).Draw(t, "gang")
		j := Job(1, GPUs(n), Exclusive, Lasts(time.Hour), Waited(time.Duration(rapid.IntRange(0, 6).Draw(t, "waited"))*time.Minute))
		w.Submit(j)
		free := map[cluster.NodeID]int{}
		for _, x := range nodes {
			for i := range x.GPUs {
				if u, _ := w.Ledg.GPU(x.GPUs[i].ID); u.Shares == 0 {
					free[x.ID]++
				}
			}
		}
		s := w.Snapshot()
		p := scheduler.Schedule(s, pol)
		s.Nodes[0], s.Nodes[1] = s.Nodes[1], s.Nodes[0]
		if d := cmp.Diff(p.Starts, scheduler.Schedule(s, pol).Starts); d != "" {
			t.Fatalf("another order of nodes:\n%s", d)
		}
		apply(t, w, p, pol)
		if len(p.Starts) == 0 && w.Clock >= j.Eligible.Add(6*time.Minute) && max(free["n1"], free["n2"]) >= n {
			t.Fatalf("a gang of %d waits although %v are free: %v", n, free, p.Unplaced)
		}
	})
}

// TestGangsOnOneSwitch: a job on several nodes lies below one switch where it can, on the
// nodes with the fewest free cards of those, and starts at once where it cannot.
func TestGangsOnOneSwitch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		nodes int
		gpus  int
		want  []cluster.NodeID
		words string
	}{
		{"the switch with the fewest nodes", 2, 1, []cluster.NodeID{"n4", "n5"}, ", all on switch c"},
		{"of one switch those that are least empty", 2, 2, []cluster.NodeID{"n3", "n6"}, ", all on switch a"},
		{"several switches", 4, 1, []cluster.NodeID{"n1", "n3", "n4", "n6"}, ", on 2 switches"},
		{"nodes without GPUs", 2, 0, []cluster.NodeID{"n4", "n5"}, ", all on switch c"},
	} {
		w := NewWorld([]*cluster.Node{Node("n1", 2, a100, Switch("core:a")), Node("n2", 2, a100), Node("n3", 2, a100, Switch("core:a")),
			Node("n4", 2, a100, Switch("core:c")), Node("n5", 2, a100, Switch("core:c")), Node("n6", 2, a100, Switch("core:a"))})
		for i, g := range []cluster.GPUID{"n1-00", "n4-00"} {
			running(w, Job(cluster.JobID(50+i), Lasts(time.Hour)), g, whole(80000))
		}
		w.Submit(Job(1, GPUs(c.gpus), Nodes(c.nodes), Exclusive, Lasts(time.Hour)))
		p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		var got []cluster.NodeID
		why := ""
		for _, s := range p.Starts {
			for _, b := range s.Berths() {
				got = append(got, b.Node)
			}
			why = s.Why
		}
		if d := cmp.Diff(c.want, got); d != "" || !strings.Contains(why, c.words) {
			t.Errorf("%s (-want +got):\n%s%q, want %q", c.name, d, why, c.words)
		}
	}
}

// TestFewSwitches: who asks for one switch waits until one has room, or its wait is over,
// says so, and keeps nobody of its shape from starting; who stands behind it starts where
// it cannot.
func TestFewSwitches(t *testing.T) {
	t.Parallel()
	asks := func(most int, wait time.Duration) JobOption {
		return func(j *cluster.Job) {
			j.Spec.Where = &cluster.Where{Switches: cluster.Switches{Most: most, Wait: wait}}
		}
	}
	for _, c := range []struct {
		name string
		job  *cluster.Job
		want string
		says string
	}{
		{"one switch", Job(1, GPUs(2), Nodes(2), Exclusive, Lasts(time.Hour), asks(1, 5*time.Minute)), "", ", on one switch for another ~5 min"},
		{"it has waited for a while", Job(1, GPUs(2), Nodes(2), Exclusive, Lasts(time.Hour), Waited(2*time.Minute), asks(1, 5*time.Minute)), "", ", on one switch for another ~3 min"},
		{"two switches", Job(1, GPUs(2), Nodes(2), Exclusive, Lasts(time.Hour), asks(2, 5*time.Minute)), "n2 n4", ""},
		{"its wait is over", Job(1, GPUs(2), Nodes(2), Exclusive, Lasts(time.Hour), Waited(5*time.Minute), asks(1, 5*time.Minute)), "n2 n4", ""},
		{"one switch has room for less", Job(1, GPUs(1), Nodes(2), Exclusive, Lasts(time.Hour), asks(1, 5*time.Minute)), "n3 n4", ""},
		{"nodes without GPUs", Job(1, Nodes(2), GPUs(0), Lasts(time.Hour), asks(1, 5*time.Minute)), "n1 n2", ""},
	} {
		w := NewWorld([]*cluster.Node{Node("n1", 2, a100, Switch("core:a")), Node("n2", 2, a100, Switch("core:a")),
			Node("n3", 2, a100, Switch("core:b")), Node("n4", 2, a100, Switch("core:b"))})
		for i, g := range []cluster.GPUID{"n1-00", "n1-01", "n3-00"} {
			running(w, Job(cluster.JobID(50+i), Lasts(time.Hour)), g, whole(80000))
		}
		w.Submit(c.job)
		p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		if got := startedOn(p.Starts, 1); got != c.want {
			t.Errorf("%s: starts on %q, want %q", c.name, got, c.want)
		}
		if c.says != "" && (len(p.Unplaced) != 1 || !strings.Contains(p.Unplaced[0].Reason.Detail, c.says)) {
			t.Errorf("%s: says %+v, want %q", c.name, p.Unplaced, c.says)
		}
		lasts := time.Hour
		if c.job.Eligible < w.Clock { // nodes are kept for it by now
			lasts = time.Minute
		}
		w.Submit(Job(2, GPUs(2), Nodes(2), Exclusive, Lasts(lasts)))
		if p = scheduler.Schedule(w.Snapshot(), scheduler.Default()); c.want == "" && startedOn(p.Starts, 2) != "n2 n4" {
			t.Errorf("%s: who comes after it starts on %q", c.name, startedOn(p.Starts, 2))
		}
	}
}

// startedOn is the nodes on which a job starts, "" where it does not.
func startedOn(starts []dispatch.Start, id cluster.JobID) string {
	var out []string
	for _, s := range starts {
		for _, b := range s.Berths() {
			if s.Job == id {
				out = append(out, string(b.Node))
			}
		}
	}
	return strings.Join(out, " ")
}
