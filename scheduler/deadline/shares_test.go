package deadline

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// ranged is a job of least to most cards that is predicted to take surely at most a
// time with its least.
func ranged(id cluster.JobID, due, takes time.Duration, least, most int) *cluster.Job {
	j := schedtest.Job(id, schedtest.GPUs(least), schedtest.Exclusive)
	j.Spec.GPURange, j.Spec.Deadline = cluster.GPURange{Min: least, Max: most}, now.Add(due)
	for _, t := range []string{"A", "B"} {
		j.Estimates = append(j.Estimates, cluster.Estimate{GPUType: t, Duration: takes * 2 / 3, ConfidenceMilli: 1000})
	}
	return j
}

// takes is how long it takes with n cards at most, by the common curve.
func takes(j *cluster.Job, n int) time.Duration {
	speed := func(n int) float64 { return float64(n) / (1 + 0.1*float64(n-1)) }
	return time.Duration(1.5 * j.Estimates[0].Duration.Seconds() * speed(j.Spec.GPURange.Min) / speed(n) * 1e9)
}

// busyFor has each card of each node busy so long.
func busyFor(nodes ...[]time.Duration) *dispatch.Snapshot {
	snap := &dispatch.Snapshot{Now: now}
	id := cluster.JobID(1000)
	for i, cards := range nodes {
		n := schedtest.Node(cluster.NodeID(fmt.Sprintf("n%d", i)), len(cards), "A")
		for k, left := range cards {
			if id++; left > 0 {
				snap.Running = append(snap.Running, occupies(id, n.GPUs[k].ID, n.ID, left))
			}
		}
		snap.Nodes = append(snap.Nodes, n)
	}
	return snap
}

func allClaimed() rules.Policy {
	pol := rules.Default()
	pol.DeadlineShareMilli = 1000
	return pol
}

// fewestOf lays jobs one after the other in order of deadline: each has the fewest
// cards with which it ends in time on some node, otherwise those with which it ends
// first, if several do on the one that is free first.
func fewestOf(free [][]time.Duration, jobs []*cluster.Job) (sizes map[cluster.JobID]int, late int) {
	left := make([][]time.Duration, len(free))
	for i := range free {
		left[i] = slices.Clone(free[i])
	}
	slices.SortStableFunc(left, func(a, b []time.Duration) int { return cmp.Compare(slices.Min(a), slices.Min(b)) })
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, byDeadline)
	sizes = map[cluster.JobID]int{}
	for _, j := range jobs {
		by, best, on, end := j.Spec.Deadline.Sub(now), 0, -1, time.Duration(0)
		for n := j.Spec.GPURange.Min; n <= j.Spec.GPURange.Max; n++ {
			for i := range left {
				slices.Sort(left[i])
				if len(left[i]) < n {
					continue
				}
				e := left[i][n-1] + takes(j, n)
				if better := on < 0 || end > by && e < end || n == best && e < end; better {
					best, on, end = n, i, e
				}
			}
			if on >= 0 && end <= by {
				break
			}
		}
		if on < 0 || end > by {
			late++
		}
		for k := range best {
			left[on][k] = end
		}
		sizes[j.ID] = best
	}
	return sizes, late
}

// TestSharesByHand: how few cards are sufficient, given who comes first.
func TestSharesByHand(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	for name, tc := range map[string]struct {
		free [][]time.Duration
		jobs []*cluster.Job
		want []int
	}{
		"one is enough":                    {[][]time.Duration{{0, 0, 0, 0}}, []*cluster.Job{ranged(1, 4*h, 4*h, 1, 4)}, []int{1}},
		"a minute less, and it needs two":  {[][]time.Duration{{0, 0, 0, 0}}, []*cluster.Job{ranged(1, 4*h-time.Minute, 4*h, 1, 4)}, []int{2}},
		"two are 1.8 times as fast":        {[][]time.Duration{{0, 0, 0, 0}}, []*cluster.Job{ranged(1, 4*h*10/19, 4*h, 1, 4)}, []int{3}},
		"four when one waits for the rest": {[][]time.Duration{{0, h, h, h}}, []*cluster.Job{ranged(1, h+4*h*13/40+time.Second, 4*h, 1, 4)}, []int{4}},
		"the earlier deadline goes first":  {[][]time.Duration{{0, 0}}, []*cluster.Job{ranged(1, 4*h, 3*h, 1, 2), ranged(2, 2*h, 3*h, 1, 2)}, []int{2, 2}},
		"late with any, so with the most":  {[][]time.Duration{{0, 0}}, []*cluster.Job{ranged(1, h, 4*h, 1, 2)}, []int{2}},
		"no more than it may have":         {[][]time.Duration{{0, 0, 0, 0}}, []*cluster.Job{ranged(1, h, 4*h, 1, 3)}, []int{3}},
		"the node that has enough":         {[][]time.Duration{{0, 0}, {0, 0, 0}}, []*cluster.Job{ranged(1, 2*h, 4*h, 1, 4)}, []int{3}},
	} {
		snap := busyFor(tc.free...)
		snap.Waiting = tc.jobs
		got := Shares(snap, allClaimed())
		for i, n := range tc.want {
			if got[tc.jobs[i].ID] != n {
				t.Errorf("%s: job %d needs %d, want %d", name, tc.jobs[i].ID, got[tc.jobs[i].ID], n)
			}
		}
	}
}

// TestFewestOfAllTypes: one card of a type on which it is in time serves a job better
// than two of another on which it ends sooner.
func TestFewestOfAllTypes(t *testing.T) {
	t.Parallel()
	snap := busyFor(make([]time.Duration, 2))
	snap.Nodes = append(snap.Nodes, schedtest.Node("b", 2, "B"))
	j := ranged(1, 3*hour, 4*hour, 1, 2)
	j.Estimates[1].Duration = 100 * minute // two and a half hours at most
	checks, err := Admit(snap, []*cluster.Job{j}, allClaimed())
	if c := checks[j]; err != nil || c.GPUType != "B" || c.Units != 1 {
		t.Errorf("%v: %d on %s, want one on B", err, c.Units, c.GPUType)
	}
}

// TestSharesAsANaiveSearch compares the shares, and who is admitted, with a search
// that lays one job after the other.
func TestSharesAsANaiveSearch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var free [][]time.Duration
		for range rapid.IntRange(1, 3).Draw(t, "nodes") {
			var cards []time.Duration
			for range rapid.IntRange(1, 4).Draw(t, "cards") {
				cards = append(cards, time.Duration(rapid.IntRange(0, 4).Draw(t, "busy"))*30*minute)
			}
			free = append(free, cards)
		}
		snap, pol := busyFor(free...), allClaimed()
		draw := func(id cluster.JobID) *cluster.Job {
			least := rapid.IntRange(1, 2).Draw(t, "least")
			takes := time.Duration(rapid.IntRange(1, 8).Draw(t, "takes")) * 40 * minute
			return ranged(id, time.Duration(rapid.IntRange(1, 400).Draw(t, "due"))*minute, takes, least, least+rapid.IntRange(1, 3).Draw(t, "more"))
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "jobs") {
			snap.Waiting = append(snap.Waiting, draw(cluster.JobID(i+1)))
		}
		want, late := fewestOf(free, snap.Waiting)
		got := Shares(snap, pol)
		for _, j := range snap.Waiting {
			if n := max(want[j.ID], j.Spec.GPURange.Min); got[j.ID] != n {
				t.Fatalf("job %d needs %d, want %d", j.ID, got[j.ID], n)
			}
		}
		fresh := draw(50)
		all, more := fewestOf(free, append(slices.Clone(snap.Waiting), fresh))
		checks, err := Admit(snap, []*cluster.Job{fresh}, pol)
		if late > 0 {
			return // who is late already may be late in another way
		}
		if (err == nil) != (more == 0) {
			t.Fatalf("%v, but %d of all would be late", err, more)
		}
		if err == nil && checks[fresh].Units != all[50] {
			t.Fatalf("promised with %d, want %d", checks[fresh].Units, all[50])
		}
	})
}

// grown is a job of 1 to 4 cards that runs on n of a node, of which a part is done.
func grown(snap *dispatch.Snapshot, due, takes, ran time.Duration, n int) *cluster.Job {
	j := ranged(7, due, takes, 1, 4)
	j.Spec, j.State = j.Spec.Sized(n), cluster.JobRunning
	j.Spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: 4 * minute}
	a := cluster.Attempt{No: 1, State: cluster.JobRunning, Placed: now.Add(-ran), Started: now.Add(-ran), Estimate: j.Estimates[0]}
	a.Estimate.Duration = elastic.Rest(j, now.Add(-ran), a.Estimate.Duration, n)
	a.Berth.Node = snap.Nodes[0].ID
	for k := range n {
		a.Berth.GPUs = append(a.Berth.GPUs, cluster.GPUShare{GPU: snap.Nodes[0].GPUs[k].ID, Share: cluster.Share{Exclusive: true, Milli: cluster.WholeGPU}})
	}
	j.Attempts = []cluster.Attempt{a}
	snap.Running = append(snap.Running, j)
	snap.Terms = map[cluster.JobID]dispatch.Terms{7: {Shrinks: true}}
	return j
}

// TestARunningJobKeepsItsShare: with as few as still keep its deadline it restarts
// five minutes later, and has to do what is left.
func TestARunningJobKeepsItsShare(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	for name, tc := range map[string]struct {
		due, takes, ran time.Duration
		n, want         int
	}{
		"its least":                     {2*h + 5*minute, 2 * h, 0, 4, 1},
		"a minute less":                 {2*h + 4*minute, 2 * h, 0, 4, 2},
		"what it has":                   {h, 2 * h, 0, 2, 2},
		"half is done, and it is tight": {h + 5*minute - time.Second, 2 * h, 33 * minute, 2, 2},
		"half is done":                  {h + 5*minute + time.Second, 2 * h, 33 * minute, 2, 1},
		"too late for it is not kept":   {-minute, 2 * h, 0, 4, 1},
	} {
		snap := busyFor(make([]time.Duration, 4))
		j := grown(snap, tc.due, tc.takes, tc.ran, tc.n)
		if got := Shares(snap, allClaimed())[j.ID]; got != tc.want {
			t.Errorf("%s: keeps %d, want %d", name, got, tc.want)
		}
	}
}

// TestRoomOfThoseThatShrink: a promise counts on what a running job has beyond its
// share, with which it restarts, and not on the rest.
func TestRoomOfThoseThatShrink(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	for name, tc := range map[string]struct {
		asks    *cluster.Job
		due     time.Duration
		change  func(snap *dispatch.Snapshot, j *cluster.Job)
		refused bool
	}{
		"what it does not need": {asks: promised(9, 2*h, h, 3), due: 9 * h},
		"it needs two":          {asks: promised(9, 2*h, h, 3), due: 4 * h, refused: true},
		"and leaves two":        {asks: promised(9, 2*h, h, 2), due: 4 * h},
		"it has no hook":        {asks: promised(9, 2*h, h, 2), due: 9 * h, change: func(_ *dispatch.Snapshot, j *cluster.Job) { j.Spec.Checkpoint = cluster.Checkpoint{} }, refused: true},
		"the policy does not":   {asks: promised(9, 2*h, h, 2), due: 9 * h, change: func(s *dispatch.Snapshot, _ *cluster.Job) { s.Terms = nil }, refused: true},
		"it has just restarted": {asks: promised(9, 2*h, h, 2), due: 9 * h, change: func(_ *dispatch.Snapshot, j *cluster.Job) {
			before := cluster.Attempt{No: 1, State: cluster.JobPreempted, Ended: now.Add(-h), Preempt: &cluster.PreemptRequest{At: now.Add(-cluster.PreemptEvery + 1)}}
			j.Attempts = []cluster.Attempt{before, j.Attempts[0]}
		}, refused: true},
		"not in time":            {asks: promised(9, h+4*minute, h, 2), due: 9 * h, refused: true},
		"after its grace period": {asks: promised(9, h+4*minute+admitMargin, h, 2), due: 9 * h},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snap, pol := busyFor(make([]time.Duration, 4)), allClaimed()
			j := grown(snap, tc.due, 9*h, h, 4)
			if tc.change != nil {
				tc.change(snap, j)
			}
			checks, err := Admit(snap, []*cluster.Job{tc.asks}, pol)
			if (err != nil) != tc.refused {
				t.Fatalf("refused with %v", err)
			}
			if err == nil && !slices.Equal(checks[tc.asks].Yield, []*cluster.Job{j}) {
				t.Errorf("%v make room", checks[tc.asks].Yield)
			}
		})
	}
}
