package deadline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

var _ = draws.Fixed()

const (
	now    = schedtest.Now
	minute = time.Minute
	hour   = time.Hour
)

// promised is a job with a deadline so long from now that takes a time surely.
func promised(id cluster.JobID, due, takes time.Duration, gpus int) *cluster.Job {
	j := schedtest.Job(id, schedtest.GPUs(gpus), schedtest.Exclusive, schedtest.Lasts(takes), schedtest.Limit(takes))
	j.Spec.Deadline = now.Add(due)
	return j
}

// occupies puts a job on a card until its time limit.
func occupies(id cluster.JobID, gpu cluster.GPUID, node cluster.NodeID, left time.Duration) *cluster.Job {
	j := schedtest.Job(id, schedtest.Lasts(left+hour), schedtest.Limit(left+hour))
	j.State = cluster.JobRunning
	j.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobRunning, Placed: now.Add(-hour), Started: now.Add(-hour),
		Berth: cluster.Berth{Node: node, GPUs: []cluster.GPUShare{{GPU: gpu, Share: cluster.Share{Exclusive: true, Milli: cluster.WholeGPU}}}}}}
	return j
}

// yieldable gives a running job a hook, and says that it may be asked.
func yieldable(snap *dispatch.Snapshot, j *cluster.Job, grace time.Duration) {
	j.Spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: grace}
	if snap.Terms == nil {
		snap.Terms = map[cluster.JobID]dispatch.Terms{}
	}
	snap.Terms[j.ID] = dispatch.Terms{Preemptible: true}
}

// drawBusy draws nodes of one or two types, and who runs on their cards.
func drawBusy(t *rapid.T) *dispatch.Snapshot {
	snap := &dispatch.Snapshot{Now: now}
	id := cluster.JobID(1000)
	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		n := schedtest.Node(cluster.NodeID(fmt.Sprintf("n%d", i)), rapid.IntRange(1, 4).Draw(t, "cards"), rapid.SampledFrom([]string{"A", "A", "B"}).Draw(t, "type"))
		for k := range n.GPUs {
			switch rapid.IntRange(0, 5).Draw(t, "card") {
			case 0:
				n.GPUs[k].State = cluster.GPULost
			case 1, 2:
				id++
				left := time.Duration(rapid.IntRange(1, 8).Draw(t, "left")) * 15 * minute
				snap.Running = append(snap.Running, occupies(id, n.GPUs[k].ID, n.ID, left))
			}
		}
		if rapid.IntRange(0, 7).Draw(t, "drained") == 0 {
			schedtest.Drained(n)
		}
		snap.Nodes = append(snap.Nodes, n)
	}
	return snap
}

func freeAt(snap *dispatch.Snapshot, gpu cluster.GPUID) time.Duration {
	for _, j := range snap.Running {
		if a := j.Attempts[0]; a.Berth.GPUs[0].GPU == gpu {
			return a.Started.Add(j.Spec.TimeLimit).Sub(now)
		}
	}
	return 0
}

// claimed are, by type, when those cards are free that deadlines may claim: of each
// type the part that the policy says, rounded up, those first that are free first.
func claimed(snap *dispatch.Snapshot, share int64) map[string][]time.Duration {
	out := map[string][]time.Duration{}
	for _, n := range snap.Nodes {
		for k := range n.GPUs {
			if g := &n.GPUs[k]; !n.Drain && g.State == cluster.GPUOK {
				out[g.Type] = append(out[g.Type], freeAt(snap, g.ID))
			}
		}
	}
	for gpuType, free := range out {
		slices.Sort(free)
		most := 0
		for int64(most)*1000 < share*int64(len(free)) {
			most++
		}
		out[gpuType] = free[:most]
	}
	return out
}

// edf lays jobs for one card each in order of deadline on the card that lets each end
// first, and returns when each ends.
func edf(free map[string][]time.Duration, jobs []*cluster.Job) map[cluster.JobID]time.Duration {
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, func(a, b *cluster.Job) int {
		return cmp.Or(cmp.Compare(a.Spec.Deadline, b.Spec.Deadline), cmp.Compare(a.ID, b.ID))
	})
	left := map[string][]time.Duration{}
	for gpuType := range free {
		left[gpuType] = slices.Clone(free[gpuType])
	}
	ends := map[cluster.JobID]time.Duration{}
	for _, j := range jobs {
		best, at := "", -1
		for _, gpuType := range []string{"A", "B"} {
			if j.Spec.GPUType != "" && j.Spec.GPUType != gpuType {
				continue
			}
			for i, free := range left[gpuType] {
				if at < 0 || free < left[best][at] {
					best, at = gpuType, i
				}
			}
		}
		if at < 0 {
			ends[j.ID] = -1 // nowhere
			continue
		}
		left[best][at] += j.Spec.TimeLimit
		ends[j.ID] = left[best][at]
	}
	return ends
}

// TestAdmitAsEDF: jobs for one card of one type each are admitted exactly when the
// schedule by earliest deadline first, on the cards that may be claimed, makes none
// of them late, and none of those that were promised before and in time.
func TestAdmitAsEDF(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		snap, pol := drawBusy(t), rules.Default()
		pol.DeadlineShareMilli = rapid.SampledFrom([]int64{0, 250, 500, 1000, 1500}).Draw(t, "share")
		only := rapid.SampledFrom([]string{"A", "A", "B"}).Draw(t, "type")
		draw := func(id cluster.JobID) *cluster.Job {
			j := promised(id, time.Duration(rapid.IntRange(1, 12).Draw(t, "due"))*15*minute, time.Duration(rapid.IntRange(1, 4).Draw(t, "takes"))*15*minute, 1)
			j.Spec.GPUType = only
			return j
		}
		for id := range rapid.IntRange(0, 4).Draw(t, "promised") {
			snap.Waiting = append(snap.Waiting, draw(cluster.JobID(id+1)))
		}
		snap.Waiting = append(snap.Waiting, schedtest.Job(90, schedtest.GPUs(4))) // without a deadline: in nobody's way
		var fresh []*cluster.Job
		for id := range rapid.IntRange(1, 3).Draw(t, "new") {
			fresh = append(fresh, draw(cluster.JobID(id+50)))
		}
		free := claimed(snap, min(1000, pol.DeadlineShareMilli))
		old := edf(free, snap.Waiting[:len(snap.Waiting)-1])
		ends := edf(free, append(slices.Clone(snap.Waiting[:len(snap.Waiting)-1]), fresh...))
		want := true
		late := func(j *cluster.Job, end time.Duration) bool { return end < 0 || now.Add(end) > j.Spec.Deadline }
		for _, j := range fresh {
			want = want && !late(j, ends[j.ID])
		}
		for _, j := range snap.Waiting[:len(snap.Waiting)-1] {
			want = want && (late(j, old[j.ID]) || !late(j, ends[j.ID]))
		}
		if _, err := Admit(snap, fresh, pol); (err == nil) != want {
			t.Fatalf("refused with %v, by EDF all would be in time: %t (%v)", err, want, ends)
		}
	})
}

// TestPlansAreFeasible: whatever is asked for, a job is laid on distinct sound cards of
// one type, as many of each of as many nodes as it wants, that are free by its start or
// made free by those who yield, that no other holds meanwhile, and that it may lie on;
// no more are claimed than the share.
func TestPlansAreFeasible(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		snap, pol := drawBusy(t), rules.Default()
		for _, j := range snap.Running {
			if rapid.Bool().Draw(t, "yields") {
				yieldable(snap, j, time.Duration(rapid.IntRange(1, 10).Draw(t, "grace"))*minute)
			}
		}
		if rapid.IntRange(0, 2).Draw(t, "reserved") == 0 {
			nodes, _ := cluster.ParseHostList("n0")
			snap.Reservations = dispatch.Reservations{{Name: "r", Start: now.Add(time.Duration(rapid.IntRange(-1, 3).Draw(t, "opens")) * hour), Duration: 2 * hour, Nodes: nodes, Users: []string{"ann"}}}
		}
		var jobs []*cluster.Job
		for id := range rapid.IntRange(1, 6).Draw(t, "jobs") {
			j := promised(cluster.JobID(id+1), time.Duration(rapid.IntRange(1, 16).Draw(t, "due"))*15*minute, time.Duration(rapid.IntRange(1, 6).Draw(t, "takes"))*15*minute, rapid.IntRange(0, 3).Draw(t, "GPUs"))
			if j.Spec.Node = rapid.SampledFrom([]cluster.NodeID{"", "", "", "n1"}).Draw(t, "node"); j.Spec.Node == "" {
				j.Spec.Nodes = rapid.SampledFrom([]int{0, 0, 2, 3}).Draw(t, "on nodes")
			}
			jobs = append(jobs, j)
		}
		type stay struct {
			from, to int64
			yield    []*cluster.Job
		}
		held := map[cluster.GPUID][]stay{}
		laid := NewDemand(snap, &pol, minute).Plan(jobs)
		if len(laid) != len(jobs) {
			t.Fatalf("%d of %d jobs", len(laid), len(jobs))
		}
		for j, c := range laid {
			if c.End == 0 {
				if j.Spec.GPUs == 0 {
					t.Fatalf("job %d needs no GPU and has no end", j.ID)
				}
				continue
			}
			if c.Start < int64(now) || int64(c.End) != c.Start+j.Spec.TimeLimit.Microseconds() || len(c.On) != j.Spec.GPUs*j.Spec.NodeCount() {
				t.Fatalf("job %d for %s on %d GPUs: %+v", j.ID, j.Spec.TimeLimit, j.Spec.GPUs, c)
			}
			nodes := map[cluster.NodeID]int{}
			for i, gpu := range c.On {
				if slices.Contains(c.On[:i], gpu) {
					t.Fatalf("job %d has %s twice", j.ID, gpu)
				}
				for _, n := range snap.Nodes {
					g := n.GPU(gpu)
					if g == nil {
						continue
					}
					nodes[n.ID]++
					if n.Drain || g.State != cluster.GPUOK || g.Type != c.GPUType || j.Spec.Node != "" && j.Spec.Node != n.ID {
						t.Fatalf("job %d on %s, which it may not have", j.ID, gpu)
					}
					for _, r := range snap.Reservations {
						if start, _, ok := r.Window(now); ok && r.Nodes.Holds(n.ID) && start < j.Spec.Deadline {
							t.Fatalf("job %d, due at %d, on %s, which is reserved from %d", j.ID, j.Spec.Deadline, gpu, start)
						}
					}
				}
				held[gpu] = append(held[gpu], stay{c.Start, int64(c.End), c.Yield})
			}
			if len(c.On) > 0 && len(nodes) != j.Spec.NodeCount() || !slices.Equal(c.Nodes, slices.Sorted(maps.Keys(nodes))) {
				t.Fatalf("job %d on nodes %v, says %v", j.ID, nodes, c.Nodes)
			}
			for _, n := range nodes {
				if n != j.Spec.GPUs {
					t.Fatalf("job %d on nodes %v", j.ID, nodes)
				}
			}
		}
		for gpu, stays := range held {
			slices.SortFunc(stays, func(a, b stay) int { return cmp.Compare(a.from, b.from) })
			for _, r := range snap.Running { // who comes first waits for it, or it yields to that one
				if r.Attempts[0].Berth.GPUs[0].GPU != gpu || now.Add(freeAt(snap, gpu)) <= cluster.Time(stays[0].from) {
					continue
				}
				gone := now.Add(r.Spec.Checkpoint.Grace + minute)
				if !slices.Contains(stays[0].yield, r) || !snap.Terms[r.ID].Preemptible || cluster.Time(stays[0].from) < gone {
					t.Fatalf("somebody starts in %d s on %s, which job %d holds", (stays[0].from-int64(now))/1e6, gpu, r.ID)
				}
			}
			for i := 1; i < len(stays); i++ {
				if stays[i].from < stays[i-1].to {
					t.Fatalf("two jobs at once on %s: %+v", gpu, stays)
				}
			}
		}
		for gpuType, free := range claimed(snap, pol.DeadlineShareMilli) {
			on := 0
			for gpu := range held {
				for _, n := range snap.Nodes {
					if g := n.GPU(gpu); g != nil && g.Type == gpuType {
						on++
					}
				}
			}
			if on > len(free) {
				t.Fatalf("%d GPUs of %s are promised, %d may be", on, gpuType, len(free))
			}
		}
	})
}

// slotsOf draws slots on one or two nodes, some of which somebody would clear.
func drawSlots(t *rapid.T) (slots []slot, nodes []slotNode) {
	id := cluster.JobID(1)
	for n := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		for range rapid.IntRange(1, 4).Draw(t, "cards") {
			s := slot{node: cluster.NodeID(fmt.Sprint("n", n)), free: rapid.Int64Range(0, 9).Draw(t, "free"), mine: rapid.Bool().Draw(t, "mine")}
			if s.cleared = s.free; rapid.Bool().Draw(t, "clears") {
				s.cleared = min(s.free, rapid.Int64Range(0, 3).Draw(t, "cleared"))
				j := schedtest.Job(id)
				j.State = cluster.JobRunning
				j.Attempts = []cluster.Attempt{{State: cluster.JobRunning, Started: now.Add(-time.Duration(rapid.IntRange(0, 5).Draw(t, "ran")) * minute), Berth: cluster.Berth{GPUs: make([]cluster.GPUShare, 1)}}}
				s.by, s.lost = []*cluster.Job{j}, lostBy(j, int64(now))
				id++
				if k := len(slots); k > 0 && slots[k-1].node == s.node && len(slots[k-1].by) > 0 && rapid.IntRange(0, 2).Draw(t, "also there") == 0 {
					s.by, s.lost = slots[k-1].by, slots[k-1].lost // a job on two cards
				}
			}
			slots = append(slots, s)
		}
	}
	nodes, _ = slotNodes(slots)
	for k := range nodes {
		nodes[k].like = &cluster.GPU{}
	}
	return slots, nodes
}

// choices calls f for each set of slots that a job may have: as many of each of so
// many nodes, and only so many that were not promised before.
func choices(slots []slot, w want, left int, f func(set []int)) {
	for bits := range 1 << len(slots) {
		var set []int
		on, fresh := map[cluster.NodeID]int{}, 0
		for i := range slots {
			if bits>>i&1 == 1 {
				set = append(set, i)
				on[slots[i].node]++
				if !slots[i].mine {
					fresh++
				}
			}
		}
		fine := len(on) == w.nodes && fresh <= left
		for _, n := range on {
			fine = fine && n == w.gpus
		}
		if fine {
			f(set)
		}
	}
}

// drawRoom draws a room among slots for a job, and what it wants.
func drawRoom(t *rapid.T, gpus int) (*room, want) {
	slots, nodes := drawSlots(t)
	w := want{nodes: rapid.IntRange(1, 3).Draw(t, "on"), gpus: rapid.IntRange(1, gpus).Draw(t, "wants")}
	return &room{d: &demand{now: int64(now)}, job: schedtest.Job(900), slots: slots, nodes: nodes, left: rapid.IntRange(0, len(slots)).Draw(t, "left")}, w
}

// TestEarliestAsTried: of all sets of cards of as many nodes the one that is free first.
func TestEarliestAsTried(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, w := drawRoom(t, 4)
		slots, want := r.slots, int64(rules.Forever)
		choices(slots, w, r.left, func(set []int) {
			start := int64(0)
			for _, i := range set {
				start = max(start, slots[i].free)
			}
			want = min(want, start)
		})
		at, start := r.earliest(w)
		if start != want || (at == nil) != (want == rules.Forever) {
			t.Fatalf("free at %d on %v, want %d", start, at, want)
		}
		slices.Sort(at)
		among := at == nil
		choices(slots, w, r.left, func(set []int) { among = among || slices.Equal(set, at) })
		if got, _ := startAndLoss(slots, at, rules.Forever); !among || at != nil && got != start {
			t.Fatalf("%v of %+v for %+v, %d left", at, slots, w, r.left)
		}
	})
}

// startAndLoss is when a set of slots can be had, those that are free too late once
// who may yields, and what those lose, each once.
func startAndLoss(slots []slot, set []int, latest int64) (start, lost int64) {
	yields := map[*cluster.Job]int64{}
	for _, i := range set {
		if slots[i].free <= latest {
			start = max(start, slots[i].free)
			continue
		}
		start = max(start, slots[i].cleared)
		for _, j := range slots[i].by {
			yields[j] = slots[i].lost
		}
	}
	for _, l := range yields {
		lost += l
	}
	return start, lost
}

// TestRoomMadeAsTried: where some set of cards can be had in time if others make
// room, so is the one that is found; for a single card nothing loses less, and where
// none can be in time none is sooner.
func TestRoomMadeAsTried(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, w := drawRoom(t, 3)
		slots, latest := r.slots, rapid.Int64Range(0, 9).Draw(t, "latest")
		soonest, least := int64(rules.Forever), int64(rules.Forever) // the least that is lost by those in time
		choices(slots, w, r.left, func(set []int) {
			start, lost := startAndLoss(slots, set, latest)
			if soonest = min(soonest, start); start <= latest {
				least = min(least, lost)
			}
		})
		c, at := r.cleared(w, latest)
		if (at == nil) != (soonest == rules.Forever) {
			t.Fatalf("%v, and the soonest of all choices is %d", at, soonest)
		}
		if at == nil {
			return
		}
		if (c.Start <= latest) != (soonest <= latest) || c.Start > latest && c.Start != soonest {
			t.Fatalf("from %d on, latest %d; the soonest of all choices is %d", c.Start, latest, soonest)
		}
		start, lost := startAndLoss(slots, at, latest)
		if start != c.Start || lost != c.lost {
			t.Fatalf("from %d on, %d is lost; said to be %d and %d", start, lost, c.Start, c.lost)
		}
		if w == (want{nodes: 1, gpus: 1}) && c.Start <= latest && lost != least {
			t.Fatalf("%d is lost, the least of all choices in time is %d", lost, least)
		}
		for i, j := range c.Yield {
			if slices.Contains(c.Yield[:i], j) {
				t.Fatalf("job %d is asked twice", j.ID)
			}
		}
	})
}
