package site_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// sizingWorld is a cluster of nodes of four GPUs on which jobs come, run and end, as the
// state machine has it, minute after minute.
type sizingWorld struct {
	snap    dispatch.Snapshot
	ends    map[cluster.JobID]cluster.Time
	resized map[cluster.JobID]cluster.Time // when each was last asked to begin again
	fail    func(format string, args ...any)
	due     bool // jobs have deadlines, which others make room for
}

func newSizingWorld(nodes int, fail func(string, ...any)) *sizingWorld {
	w := &sizingWorld{ends: map[cluster.JobID]cluster.Time{}, resized: map[cluster.JobID]cluster.Time{}, fail: fail}
	w.snap = dispatch.Snapshot{Now: cluster.Time(1e15), Ledger: dispatch.NewLedger(nil), Queues: map[cluster.GPUID][]dispatch.Waiter{}}
	for i := range nodes {
		n := &cluster.Node{ID: cluster.NodeID(fmt.Sprint("n", i)), State: cluster.NodeReady, CPUMilli: 64_000, MemMiB: 512_000, BootID: "b"}
		for k := range 4 {
			n.GPUs = append(n.GPUs, cluster.GPU{ID: cluster.GPUID(fmt.Sprint("n", i, "-g", k)), Type: "T4", MemMiB: 16_000, SellableMiB: 15_000, MaxShares: 1, CapMode: "sim"})
		}
		w.snap.Nodes = append(w.snap.Nodes, n)
		w.snap.Ledger.SetNode(n)
	}
	return w
}

func (w *sizingWorld) idle() int {
	n := 0
	for _, node := range w.snap.Nodes {
		for i := range node.GPUs {
			if u, ok := w.snap.Ledger.GPU(node.GPUs[i].ID); ok && u.Idle() {
				n++
			}
		}
	}
	return n
}

// end ends the attempt of a running job, which waits again if it was to make room.
func (w *sizingWorld) end(j *cluster.Job, how cluster.JobState) {
	a := j.Last()
	for _, b := range a.Berths() {
		w.snap.Ledger.Release(b)
	}
	w.snap.Running = slices.DeleteFunc(w.snap.Running, func(o *cluster.Job) bool { return o == j })
	a.State, a.Ended, j.State = how, w.snap.Now, how
	if how != cluster.JobPreempted {
		return
	}
	least, _, _ := j.Spec.Sizes()
	j.State, j.Eligible = cluster.JobPending, w.snap.Now
	if j.Spec.Elastic() {
		j.Spec = j.Spec.Sized(least)
	}
	w.snap.Waiting = append(w.snap.Waiting, j)
	slices.SortFunc(w.snap.Waiting, func(a, b *cluster.Job) int { return int(a.ID) - int(b.ID) })
}

// minute plans and carries the plan out, and holds it to the laws of every sizing.
func (w *sizingWorld) minute(s *site.Site) {
	idle, running := w.idle(), len(w.snap.Running)
	own := w.snap
	own.Ledger, own.Waiting, own.Running = w.snap.Ledger.Clone(), slices.Clone(w.snap.Waiting), slices.Clone(w.snap.Running)
	plan := site.Plan(&own, s, site.Full)
	asked, second := 0, false
	for _, j := range w.snap.Waiting {
		least, most, unit := j.Spec.Sizes()
		gpus := least * unit
		if i := slices.IndexFunc(plan.Starts, func(st dispatch.Start) bool { return st.Job == j.ID }); i >= 0 {
			st := &plan.Starts[i]
			a := cluster.Attempt{No: uint32(len(j.Attempts)) + 1, State: cluster.JobRunning, Berth: st.Berth, Estimate: st.Estimate, Placed: w.snap.Now, Started: w.snap.Now}
			if len(st.Rest) > 0 {
				a.Gang = &cluster.Gang{Rest: st.Rest, Go: true}
				for range len(st.Rest) + 1 {
					a.Gang.Parts = append(a.Gang.Parts, cluster.Part{State: cluster.JobRunning})
				}
			}
			n := least
			if j.Spec.Elastic() {
				n = a.Size(j.Spec)
			}
			if gpus = len(a.AllGPUs()); n < least || n > most || gpus != n*unit {
				w.fail("job %d of %d to %d units of %d GPUs starts with %d of %d", j.ID, least, most, unit, n, gpus)
			}
			seen := map[cluster.NodeID]bool{}
			for _, b := range a.Berths() {
				if r := w.snap.Ledger.Fits(b); r.Code != "" || seen[b.Node] {
					w.fail("job %d does not fit on node %s: %v", j.ID, b.Node, r)
				}
				seen[b.Node] = true
				w.snap.Ledger.Take(b)
			}
			second = second || n > least && j.Spec.Deadline == 0
			j.Attempts = append(j.Attempts, a)
			j.State, j.Started = cluster.JobRunning, w.snap.Now
			if j.Spec.Elastic() {
				j.Spec = j.Spec.Sized(n)
			}
			w.snap.Running = append(w.snap.Running, j)
		}
		asked += gpus
	}
	if second && asked > idle {
		w.fail("somebody starts with more than its least, and %d GPUs are given or waited for of %d that are idle", asked, idle)
	}
	w.snap.Waiting = slices.DeleteFunc(w.snap.Waiting, func(j *cluster.Job) bool { return j.State == cluster.JobRunning })
	slices.SortFunc(w.snap.Running, func(a, b *cluster.Job) int { return int(a.ID) - int(b.ID) })
	if len(plan.Preempt) > 1 && !w.due || len(plan.Preempt) > running {
		w.fail("%d jobs begin again at once", len(plan.Preempt))
	}
	for i := range plan.Preempt {
		w.asked(&plan.Preempt[i])
	}
}

func (w *sizingWorld) asked(p *dispatch.Preemption) {
	i := slices.IndexFunc(w.snap.Running, func(j *cluster.Job) bool { return j.ID == p.Job })
	if i < 0 {
		w.fail("job %d begins again and does not run", p.Job)
		return
	}
	j := w.snap.Running[i]
	if last, ok := w.resized[j.ID]; !w.due && (!j.Spec.Elastic() || !j.Spec.Checkpoint.Set() || ok && w.snap.Now.Sub(last) < elastic.Every || w.snap.Now.Sub(j.Last().Started) < elastic.Every) {
		w.fail("job %d begins again after %s, it was asked at %v", j.ID, w.snap.Now.Sub(j.Last().Started), last)
	}
	for _, other := range w.snap.Waiting {
		if p.For == 0 && other.Spec.GPUs > 0 {
			w.fail("job %d begins again for nobody while job %d waits: %s", j.ID, other.ID, p.Why)
		}
	}
	w.resized[j.ID] = w.snap.Now
	j.Last().Preempt = &cluster.PreemptRequest{At: w.snap.Now, For: p.For, Why: p.Why}
}

// step lets a minute go by: who was asked to save its state waits again, others end.
func (w *sizingWorld) step() {
	w.snap.Now = w.snap.Now.Add(time.Minute)
	for _, j := range slices.Clone(w.snap.Running) {
		switch {
		case w.snap.Now >= w.ends[j.ID]:
			w.end(j, cluster.JobCompleted)
		case j.Last().Preempt != nil:
			w.end(j, cluster.JobPreempted)
		}
	}
}

// TestEverySizingKeepsTheLaws: with fixed jobs, gangs and jobs of both kinds of elastic
// size on one cluster, no sizing starts anybody with more than there is or outside of its
// range, none has a job begin again twice in ten minutes or more than one at once, and
// nobody has a second helping while others lack their least.
func TestEverySizingKeepsTheLaws(t *testing.T) {
	t.Parallel()
	for _, sizing := range elastic.Sizings() {
		t.Run(string(sizing), func(t *testing.T) {
			t.Parallel()
			again := 0
			rapid.Check(t, func(t *rapid.T) {
				s := &site.Site{Chosen: site.Chosen{Policy: scheduler.Default(), Elastic: elastic.Rules{Sizing: sizing}}}
				s.Policy.YieldAfter, s.Policy.MaxReasons = 0, -1
				w := newSizingWorld(rapid.IntRange(1, 4).Draw(t, "nodes"), t.Errorf)
				for id := cluster.JobID(1); w.snap.Now < cluster.Time(1e15).Add(100*time.Minute); {
					for range rapid.IntRange(-3, 2).Draw(t, "come") {
						w.come(id, drawSized(t))
						id++
					}
					w.minute(s)
					w.step()
				}
				again += len(w.resized)
			})
			if again == 0 && sizing != elastic.None {
				t.Error("nobody ever began again with another size")
			}
		})
	}
}

// come adds a job that takes so long, however many GPUs it gets.
func (w *sizingWorld) come(id cluster.JobID, j *cluster.Job) {
	j.ID, j.State, j.Eligible, j.Submitted = id, cluster.JobPending, w.snap.Now, w.snap.Now
	w.ends[id] = w.snap.Now.Add(j.Spec.Duration)
	w.snap.Waiting = append(w.snap.Waiting, j)
}

func drawSized(t *rapid.T) *cluster.Job {
	s := &cluster.Spec{GPUs: rapid.IntRange(1, 4).Draw(t, "gpus"), Exclusive: true, Duration: time.Duration(rapid.IntRange(5, 90).Draw(t, "minutes")) * time.Minute}
	if rapid.IntRange(0, 3).Draw(t, "hook") > 0 {
		s.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
	}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		s.Nodes = rapid.IntRange(2, 3).Draw(t, "nodes of a gang")
	case 1, 2:
		s.NodeRange = cluster.NodeRange{Min: rapid.IntRange(1, 2).Draw(t, "least nodes"), Max: rapid.IntRange(3, 4).Draw(t, "most nodes")}
		s.Nodes = s.NodeRange.Min
	case 3, 4:
		s.GPUs = rapid.IntRange(1, 2).Draw(t, "least")
		s.GPURange = cluster.GPURange{Min: s.GPUs, Max: s.GPUs + rapid.IntRange(1, 4).Draw(t, "more")}
	}
	return &cluster.Job{Spec: s, Estimates: []cluster.Estimate{{GPUType: "T4", Duration: time.Duration(rapid.IntRange(5, 300).Draw(t, "predicted")) * time.Minute}}}
}
