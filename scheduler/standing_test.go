package scheduler

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// TestClassRanks: ranks keep their order in a class, and classes theirs.
func TestClassRanks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string) (rank int64, class int8) {
			return rapid.Int64Range(0, 6*rankTier).Draw(t, what), int8(rapid.IntRange(0, accounting.MaxPriority).Draw(t, what+" class"))
		}
		a, x := draw("a")
		b, y := draw("b")
		in, on := inClass(a, x), inClass(b, y)
		switch {
		case priorityOf(in) != x:
			t.Fatalf("rank %d of class %d is of class %d", in, x, priorityOf(in))
		case x > y && in >= on:
			t.Fatalf("class %d comes after class %d", x, y)
		case x == y && a>>rankShift < b>>rankShift && in >= on:
			t.Fatalf("%d before %d became %d after %d", a, b, in, on)
		case RankIsOld(in) != (classless(a) < rankTier), rankedShort(in) != rankedShort(a):
			t.Fatalf("rank %d of class %d forgot its tier", a, x)
		}
	})
}

// TestMix: fair shares and nice values move jobs by places, and nothing moves
// deadlines and the old.
func TestMix(t *testing.T) {
	t.Parallel()
	job := func(id cluster.JobID, uid cluster.UID, nice int32) item {
		return item{job: &cluster.Job{ID: id, Owner: cluster.Owner{UID: uid}, Spec: &cluster.Spec{Nice: nice}}}
	}
	fair := &accounting.Standing{Fair: &accounting.Fair{Index: map[accounting.Assoc]int32{{UID: 1}: 0, {UID: 2}: 1}, Places: []int32{2, 1}, Of: 2}}
	for _, c := range []struct {
		name  string
		milli int64
		fair  *accounting.Standing
		items []item
		tiers []int8
		want  []cluster.JobID
	}{
		{"nothing to mix", 500, nil, []item{job(1, 1, 0), job(2, 2, 0)}, nil, []cluster.JobID{1, 2}},
		{"fair alone", 1000, fair, []item{job(1, 1, 0), job(2, 1, 0), job(3, 2, 0)}, nil, []cluster.JobID{3, 1, 2}},
		{"length weighs more", 100, fair, []item{job(1, 1, 0), job(2, 1, 0), job(3, 2, 0)}, nil, []cluster.JobID{1, 2, 3}},
		{"nice steps back by places", 0, nil, []item{job(1, 1, 1), job(2, 1, 0), job(3, 2, 0)}, nil, []cluster.JobID{1, 2, 3}},
		{"further back", 0, nil, []item{job(1, 1, 2), job(2, 1, 0), job(3, 2, 0), job(4, 2, 0)}, nil, []cluster.JobID{2, 1, 3, 4}},
		{"steps forward", 0, nil, []item{job(1, 1, 0), job(2, 1, 0), job(3, 2, -9)}, nil, []cluster.JobID{3, 1, 2}},
		{"the old stay", 1000, fair, []item{job(1, 1, 100), job(2, 1, 0), job(3, 2, 0)}, []int8{tierOld, tierMiddle, tierMiddle}, []cluster.JobID{1, 3, 2}},
	} {
		p := &turns{scene: &scene{mem: &memory{}, items: c.items, standing: c.fair, niced: slices.ContainsFunc(c.items, func(it item) bool { return it.job.Spec.Nice != 0 })}}
		p.pol.FairMilli = c.milli
		var order []rank
		for i := range c.items {
			r := rank{id: c.items[i].job.ID, item: int32(i), tier: tierMiddle}
			if c.tiers != nil {
				r.tier = c.tiers[i]
			}
			order = append(order, r)
		}
		p.mix(order)
		var got []cluster.JobID
		for _, r := range order {
			got = append(got, r.id)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func limiter(s accounting.Subject, l accounting.Limits) *accounting.Limiter {
	return accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{s: {Subject: s, Limits: l}}, nil)
}

// TestLimits: a pass starts as many as a quota allows, says so of the others,
// and lets jobs behind them go on.
func TestLimits(t *testing.T) {
	t.Parallel()
	var waiting []*cluster.Job
	for i := range 6 {
		j := &cluster.Job{
			ID: cluster.JobID(i + 1), State: cluster.JobPending, Owner: cluster.Owner{UID: 1}, Spec: &cluster.Spec{GPUs: 1, GPUMemMiB: 10_000, GPUMilli: 500},
			Estimates: []cluster.Estimate{{GPUType: "A", GPUMemMiB: 10_000, GPUMemP95MiB: 10_000, Milli: 500, Duration: time.Hour, ConfidenceMilli: 1000, Source: "declared"}},
		}
		if i == 5 {
			j.Owner.UID = 2
		}
		waiting = append(waiting, j)
	}
	n := &cluster.Node{ID: "n", State: cluster.NodeReady, CPUMilli: 64_000, MemMiB: 256_000}
	for _, id := range []cluster.GPUID{"g0", "g1", "g2", "g3"} {
		n.GPUs = append(n.GPUs, cluster.GPU{ID: id, Type: "A", MemMiB: 40_000, SellableMiB: 40_000, MaxShares: 3, CapMode: "sim"})
	}
	snap := &dispatch.Snapshot{Nodes: []*cluster.Node{n}, Ledger: dispatch.NewLedger([]*cluster.Node{n}), Waiting: waiting}
	for _, c := range []struct {
		name   string
		l      accounting.Limits
		starts int
		code   cluster.ReasonCode
	}{
		{"none", accounting.Limits{}, 6, ""},
		{"half GPUs", accounting.Limits{GPUMilli: 1500}, 4, "AssocGrpGRES"},
		{"running", accounting.Limits{Running: 2}, 3, "AssocMaxJobsLimit"},
	} {
		snap.Limits = limiter(accounting.Subject{User: true, UID: 1}, c.l)
		plan := Schedule(snap, Default())
		if len(plan.Starts) != c.starts || !slices.ContainsFunc(plan.Starts, func(s dispatch.Start) bool { return s.Job == 6 }) {
			t.Errorf("%s: %d starts, want %d with job 6", c.name, len(plan.Starts), c.starts)
		}
		for _, u := range plan.Unplaced {
			if u.Reason.Code != c.code {
				t.Errorf("%s: job %d waits for %s", c.name, u.Job, u.Reason)
			}
		}
		for _, m := range plan.Moves {
			if m.GPU != "" || m.Reason != c.code {
				t.Errorf("%s: %+v", c.name, m)
			}
		}
	}
}

// TestMakeRoom: as few are ended as will do, of those the ones that lose least,
// and only such as make room for the job.
func TestMakeRoom(t *testing.T) {
	t.Parallel()
	now := cluster.Time(10_000_000_000)
	low := func(id cluster.JobID, gpu cluster.GPUID, milli int64, ran time.Duration, qos string) *cluster.Job {
		return &cluster.Job{
			ID: id, State: cluster.JobRunning, Spec: &cluster.Spec{GPUs: 1, QOS: qos, Checkpoint: cluster.Checkpoint{Signal: "TERM", Grace: time.Second}},
			Attempts: []cluster.Attempt{{No: 1, State: cluster.JobRunning, Started: now.Add(-ran), GPUMilli: milli,
				Berth: cluster.Berth{Node: "n", CPUMilli: 1000, MemMiB: 1000, GPUs: []cluster.GPUShare{{GPU: gpu, Share: cluster.Share{MemMiB: 40 * milli, Milli: milli}}}}}},
		}
	}
	for _, c := range []struct {
		name    string
		running []*cluster.Job
		milli   int64
		want    []cluster.JobID
	}{
		{"the one that ran least", []*cluster.Job{low(1, "g0", 900, 2*time.Hour, "low"), low(2, "g1", 900, time.Hour, "low")}, 500, []cluster.JobID{2}},
		{"no more than needed", []*cluster.Job{low(1, "g0", 300, time.Hour, "low"), low(2, "g0", 300, 2*time.Hour, "low"), low(3, "g0", 300, 3*time.Hour, "low"), low(4, "g1", 1000, time.Hour, "mid")}, 300, []cluster.JobID{1}},
		{"two where one does not do", []*cluster.Job{low(1, "g0", 500, time.Hour, "low"), low(2, "g0", 500, time.Hour, "low"), low(3, "g1", 1000, time.Hour, "mid")}, 900, []cluster.JobID{1, 2}},
		{"nobody may be ended", []*cluster.Job{low(1, "g0", 1000, time.Hour, "mid"), low(2, "g1", 1000, time.Hour, "")}, 500, nil},
	} {
		n := &cluster.Node{ID: "n", State: cluster.NodeReady, CPUMilli: 64_000, MemMiB: 256_000}
		for _, id := range []cluster.GPUID{"g0", "g1"} {
			n.GPUs = append(n.GPUs, cluster.GPU{ID: id, Type: "A", MemMiB: 40_000, SellableMiB: 40_000, MaxShares: 3, CapMode: "sim"})
		}
		led := dispatch.NewLedger([]*cluster.Node{n})
		for _, j := range c.running {
			led.Take(&j.Attempts[0].Berth)
		}
		high := &cluster.Job{
			ID: 9, State: cluster.JobPending, Spec: &cluster.Spec{GPUs: 1, QOS: "high", GPUMemMiB: 1000, GPUMilli: c.milli},
			Estimates: []cluster.Estimate{{GPUType: "A", GPUMemMiB: 1000, GPUMemP95MiB: 1000, Milli: c.milli, Duration: time.Hour, ConfidenceMilli: 1000, Source: "declared"}},
		}
		plan := Schedule(&dispatch.Snapshot{
			Now: now, Nodes: []*cluster.Node{n}, Ledger: led, Waiting: []*cluster.Job{high}, Running: c.running,
			Standing: &accounting.Standing{QOS: map[string]*accounting.QOS{"high": {Name: "high", Priority: 9, Preempts: []string{"low"}}, "low": {Name: "low"}, "mid": {Name: "mid"}}},
		}, Default())
		var got []cluster.JobID
		for _, x := range plan.Preempt {
			got = append(got, x.Job)
			if x.For != 9 {
				t.Errorf("%s: for job %d", c.name, x.For)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: ends %v, want %v", c.name, got, c.want)
		}
	}
}
