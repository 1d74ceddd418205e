package elastic_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler/elastic"
)

var _ = draws.Fixed()

const now = cluster.Time(1e15)

// world is nodes with idle GPUs, as many on each as idle says, of four that it has.
func world(idle ...int) *dispatch.Snapshot {
	s := &dispatch.Snapshot{Now: now, Ledger: dispatch.NewLedger(nil)}
	for i, free := range idle {
		n := &cluster.Node{ID: cluster.NodeID(fmt.Sprint("n", i)), State: cluster.NodeReady, CPUMilli: 1e6, MemMiB: 1e6}
		for k := range 4 {
			n.GPUs = append(n.GPUs, cluster.GPU{ID: cluster.GPUID(fmt.Sprint("n", i, "-g", k)), Type: "T4", MemMiB: 16_000, SellableMiB: 15_000, MaxShares: 4, CapMode: "sim"})
		}
		s.Nodes = append(s.Nodes, n)
		s.Ledger.SetNode(n)
		for k := free; k < 4; k++ {
			s.Ledger.Take(&cluster.Berth{Node: n.ID, GPUs: []cluster.GPUShare{{GPU: n.GPUs[k].ID, Share: cluster.Share{MemMiB: 15_000, Milli: 1000, Exclusive: true}}}})
		}
	}
	return s
}

// waits adds a job that wants least GPUs, or up to most where that is more.
func waits(s *dispatch.Snapshot, least, most int, since time.Duration) *cluster.Job {
	j := &cluster.Job{ID: cluster.JobID(len(s.Waiting) + len(s.Running) + 1), State: cluster.JobPending, Eligible: now.Add(-since),
		Spec: &cluster.Spec{GPUs: least}, Estimates: []cluster.Estimate{{GPUType: "T4", Duration: time.Hour, CPUMilli: 2000, HostMemMiB: 4000}}}
	if most > least {
		j.Spec.GPURange = cluster.GPURange{Min: least, Max: most}
	}
	s.Waiting = append(s.Waiting, j)
	return j
}

// runs adds a job of 1 to 4 GPUs that has n of a node's taken ones.
func runs(s *dispatch.Snapshot, node cluster.NodeID, n int, since time.Duration) *cluster.Job {
	j := &cluster.Job{ID: cluster.JobID(len(s.Waiting) + len(s.Running) + 1), State: cluster.JobRunning,
		Spec: &cluster.Spec{GPUs: n, GPURange: cluster.GPURange{Min: 1, Max: 4}, Checkpoint: cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}}}
	j.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobRunning, Started: now.Add(-since), Berth: cluster.Berth{Node: node}, Estimate: cluster.Estimate{GPUType: "T4"}}}
	s.Running = append(s.Running, j)
	return j
}

func TestSizes(t *testing.T) {
	t.Parallel()
	type want struct{ least, most, gets int }
	for name, tc := range map[string]struct {
		idle []int
		jobs []want
	}{
		"all that is idle":             {[]int{4}, []want{{1, 8, 4}}},
		"no more than it can use":      {[]int{4}, []want{{1, 3, 3}}},
		"the node with most":           {[]int{1, 3, 2}, []want{{1, 8, 3}}},
		"two are made equal":           {[]int{4}, []want{{1, 4, 2}, {1, 4, 2}}},
		"each a node of its own":       {[]int{4, 4}, []want{{1, 4, 4}, {1, 4, 4}}},
		"what others wait for is kept": {[]int{4}, []want{{1, 4, 2}, {2, 0, 2}}},
		"all wait for more than there": {[]int{4}, []want{{1, 4, 1}, {4, 0, 4}}},
		"nothing is idle":              {[]int{0}, []want{{1, 4, 1}}},
		"more than is idle at least":   {[]int{1, 1}, []want{{2, 4, 2}}},
		"fixed jobs stay as they are":  {[]int{4}, []want{{2, 0, 2}}},
		"who has less gains more":      {[]int{4, 3}, []want{{3, 4, 4}, {1, 4, 3}}},
	} {
		s := world(tc.idle...)
		for _, w := range tc.jobs {
			waits(s, w.least, w.most, time.Hour)
		}
		got := (elastic.Rules{}).Sizes(s)
		for i, w := range tc.jobs {
			n := got[s.Waiting[i].ID].Units
			if n == 0 {
				n = w.least
			}
			if n != w.gets {
				t.Errorf("%s: job %d gets %d GPUs, want %d", name, i+1, n, w.gets)
			}
		}
	}
}

// TestAProbeHasTheFewest: what failed early begins with its least, whatever is idle;
// what others wait for is none of it.
func TestAProbeHasTheFewest(t *testing.T) {
	t.Parallel()
	for _, sizing := range []elastic.Sizing{elastic.Marginal, elastic.Sia} {
		s := world(4, 4)
		j := waits(s, 1, 4, time.Hour)
		other := waits(s, 1, 4, time.Hour)
		j.Spec.Retry, j.Spec.Checkpoint = cluster.Retry{Times: 3}, cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
		j.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobFailed, Started: now.Add(-time.Minute), Ended: now.Add(-time.Second)}}
		got := elastic.Rules{Sizing: sizing}.Sizes(s)
		if got[j.ID].Units > 1 || got[other.ID].Units != 4 {
			t.Errorf("%s: %v", sizing, got)
		}
	}
}

// TestSizesFit: nobody gets more or less than it can run with, all that grow fit on
// nodes at once with those that do not, and what others wait for is left.
func TestSizesFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		idle := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 5).Draw(t, "idle")
		s := world(idle...)
		total := 0
		for _, n := range idle {
			total += n
		}
		for range rapid.IntRange(1, 6).Draw(t, "jobs") {
			least := rapid.IntRange(1, 3).Draw(t, "least")
			waits(s, least, least+rapid.IntRange(0, 4).Draw(t, "more"), time.Duration(rapid.IntRange(0, 9).Draw(t, "since"))*time.Minute)
		}
		got, sum := (elastic.Rules{}).Sizes(s), 0
		for _, j := range s.Waiting {
			size, ok := got[j.ID]
			n := size.Units
			if !ok {
				n = j.Spec.GPUs
			} else if n <= j.Spec.GPURange.Min || n > j.Spec.GPURange.Max || !j.Spec.Takes(n) {
				t.Errorf("job %d of %+v gets %d", j.ID, j.Spec.GPURange, n)
			}
			sum += n
		}
		if len(got) > 0 && sum > total {
			t.Errorf("%v: %d GPUs for all who wait, %d are idle", got, sum, total)
		}
		sized := elastic.Sized(s, got)
		for i, j := range sized.Waiting {
			was := s.Waiting[i]
			n, ok := got[j.ID].Units, got[j.ID].Units > 0
			if !ok {
				if j != was {
					t.Errorf("job %d is another", j.ID)
				}
				continue
			}
			e := j.Estimates[0]
			if want := 2000 * int64(n) / int64(was.Spec.GPUs); j.Spec.GPUs != n || was.Spec.GPUs != was.Spec.GPURange.Min || e.CPUMilli != want || e.Duration >= time.Hour {
				t.Errorf("job %d with %d GPUs: %+v, want %d thousandths of cores and less than an hour", j.ID, j.Spec.GPUs, e, want)
			}
		}
	})
}

// TestLess ends, and lowers only those that did not start.
func TestLess(t *testing.T) {
	t.Parallel()
	s := world(4, 4)
	a, b := waits(s, 1, 4, 0), waits(s, 1, 4, 0)
	sizes := map[cluster.JobID]elastic.Size{a.ID: {Units: 4}, b.ID: {Units: 4}}
	plan := &dispatch.Plan{Starts: []dispatch.Start{{Job: a.ID}}}
	for _, want := range []int{2, 0} {
		if !elastic.Less(s, sizes, plan) || sizes[a.ID].Units != 4 || sizes[b.ID].Units != want {
			t.Errorf("sizes %v, want %d of job %d", sizes, want, b.ID)
		}
	}
	if elastic.Less(s, sizes, plan) {
		t.Error("all of them start, and one was lowered")
	}
}

func TestSpeedup(t *testing.T) {
	t.Parallel()
	common := elastic.CurveOf(&cluster.Job{Spec: &cluster.Spec{}})
	if common.Speedup(1) != 1 {
		t.Errorf("one GPU is %g times one", common.Speedup(1))
	}
	gain := math.Inf(1)
	for n := 1; n < 64; n++ {
		more := common.Speedup(n+1) - common.Speedup(n)
		if more <= 0 || more > gain || common.Speedup(n) > float64(n) {
			t.Errorf("the GPU after %d gains %g, the one before %g", n, more, gain)
		}
		gain = more
	}
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	const long, short = elastic.Every, elastic.Every - time.Second
	for name, tc := range map[string]struct {
		idle        int
		make        func(s *dispatch.Snapshot)
		grows, for_ bool
	}{
		"more are idle":                  {2, func(s *dispatch.Snapshot) { runs(s, "n0", 2, long) }, true, false},
		"it began a moment ago":          {2, func(s *dispatch.Snapshot) { runs(s, "n0", 2, short) }, false, false},
		"it has all that it can use":     {2, func(s *dispatch.Snapshot) { runs(s, "n0", 4, long) }, false, false},
		"nothing is idle":                {0, func(s *dispatch.Snapshot) { runs(s, "n0", 2, long) }, false, false},
		"of fixed size":                  {2, func(s *dispatch.Snapshot) { runs(s, "n0", 2, long).Spec.GPURange = cluster.GPURange{} }, false, false},
		"it cannot save its state":       {2, func(s *dispatch.Snapshot) { runs(s, "n0", 2, long).Spec.Checkpoint = cluster.Checkpoint{} }, false, false},
		"it is about to end":             {2, func(s *dispatch.Snapshot) { runs(s, "n0", 2, long).Live().Estimate.Duration = long + time.Minute }, false, false},
		"hardly faster":                  {1, func(s *dispatch.Snapshot) { j := runs(s, "n0", 12, long); j.Spec.GPURange.Max = 16 }, false, false},
		"somebody waits":                 {0, func(s *dispatch.Snapshot) { runs(s, "n0", 3, long); waits(s, 2, 2, time.Hour) }, false, true},
		"somebody waits for more":        {0, func(s *dispatch.Snapshot) { runs(s, "n0", 3, long); waits(s, 3, 3, time.Hour) }, false, false},
		"with what is idle it is enough": {1, func(s *dispatch.Snapshot) { runs(s, "n0", 3, long); waits(s, 3, 3, time.Hour) }, false, true},
		"somebody came just now":         {0, func(s *dispatch.Snapshot) { runs(s, "n0", 3, long); waits(s, 1, 1, time.Second) }, false, false},
		"for another type":               {0, func(s *dispatch.Snapshot) { runs(s, "n0", 3, long); waits(s, 1, 1, time.Hour).Spec.GPUType = "H100" }, false, false},
		"on another node":                {0, func(s *dispatch.Snapshot) { runs(s, "n0", 3, long); waits(s, 1, 1, time.Hour).Spec.Node = "n9" }, false, false},
		"in another partition":           {0, func(s *dispatch.Snapshot) { runs(s, "n0", 3, long); waits(s, 1, 1, time.Hour).Spec.Partition = "b" }, false, false},
		"for cores alone":                {2, func(s *dispatch.Snapshot) { runs(s, "n0", 2, long); waits(s, 0, 0, time.Hour) }, true, false},
		"several that could":             {0, func(s *dispatch.Snapshot) { runs(s, "n0", 2, long); runs(s, "n0", 2, long); waits(s, 1, 1, time.Hour) }, false, true},
	} {
		s := world(tc.idle)
		tc.make(s)
		got := (elastic.Rules{}).Restarts(s, s.Ledger.Clone(), &dispatch.Plan{})
		if n := len(got); n != map[bool]int{true: 1}[tc.grows || tc.for_] || n == 1 && (got[0].For != 0) != tc.for_ {
			t.Errorf("%s: %+v", name, got)
		}
		if len(got) == 1 { // who goes already is not asked again
			if again := (elastic.Rules{}).Restarts(s, s.Ledger.Clone(), &dispatch.Plan{Preempt: got}); len(again) > 0 && again[0].Job == got[0].Job {
				t.Errorf("%s: it was asked already", name)
			}
		}
		for _, w := range s.Waiting { // who starts needs no room
			if got := (elastic.Rules{}).Restarts(s, s.Ledger.Clone(), &dispatch.Plan{Starts: []dispatch.Start{{Job: w.ID, Berth: cluster.Berth{Node: "n0"}}}}); len(got) > 0 && got[0].For != 0 {
				t.Errorf("%s: room for job %d, which starts", name, w.ID)
			}
		}
	}
}

// gang adds a job that wants least nodes, or up to most where that is more, with so many
// GPUs on each.
func gang(s *dispatch.Snapshot, least, most, gpus int, since time.Duration) *cluster.Job {
	j := waits(s, gpus, 0, since)
	j.Spec.Nodes = least
	if most > least {
		j.Spec.NodeRange = cluster.NodeRange{Min: least, Max: most}
	}
	return j
}

// onNodes adds a running job of 1 to 4 nodes that has two GPUs on each of some.
func onNodes(s *dispatch.Snapshot, since time.Duration, nodes ...cluster.NodeID) *cluster.Job {
	j := runs(s, nodes[0], 2, since)
	j.Spec.GPURange, j.Spec.NodeRange, j.Spec.Nodes = cluster.GPURange{}, cluster.NodeRange{Min: 1, Max: 4}, len(nodes)
	if a := j.Live(); len(nodes) > 1 {
		a.Gang = &cluster.Gang{}
		for _, n := range nodes[1:] {
			a.Gang.Rest = append(a.Gang.Rest, cluster.Berth{Node: n})
		}
	}
	return j
}

func TestSizesOfGangs(t *testing.T) {
	t.Parallel()
	type want struct{ least, most, gpus, gets int }
	for name, tc := range map[string]struct {
		idle []int
		jobs []want
	}{
		"all that have room":                  {[]int{4, 2, 1, 3}, []want{{1, 4, 2, 3}}},
		"no more than it can use":             {[]int{4, 4, 4}, []want{{1, 2, 2, 2}}},
		"two are made equal":                  {[]int{2, 2, 2, 2}, []want{{1, 4, 2, 2}, {1, 4, 2, 2}}},
		"two may lie on a node":               {[]int{4, 4}, []want{{1, 4, 2, 2}, {1, 4, 2, 2}}},
		"what a gang waits for is kept":       {[]int{4, 4, 4}, []want{{1, 3, 4, 1}, {2, 0, 4, 2}}},
		"nothing is left":                     {[]int{4, 4}, []want{{1, 2, 4, 1}, {2, 0, 4, 2}}},
		"beside one of a range of GPUs":       {[]int{4, 4}, []want{{1, 2, 4, 1}, {1, -4, 1, 4}}},
		"a node with less is none":            {[]int{1, 1, 4}, []want{{1, 3, 2, 1}}},
		"fewer than the least have room":      {[]int{4, 1}, []want{{2, 4, 2, 2}}},
		"a part of what is idle is of no use": {[]int{3, 3}, []want{{1, 4, 2, 2}}},
	} {
		s := world(tc.idle...)
		for _, w := range tc.jobs {
			if w.most < 0 { // of a range of GPUs
				waits(s, 1, -w.most, time.Hour)
				continue
			}
			gang(s, w.least, w.most, w.gpus, time.Hour)
		}
		got := (elastic.Rules{}).Sizes(s)
		for i, w := range tc.jobs {
			if n := max(got[s.Waiting[i].ID].Units, w.least); n != w.gets {
				t.Errorf("%s: job %d gets %d, want %d", name, i+1, n, w.gets)
			}
		}
		for _, j := range elastic.Sized(s, got).Waiting {
			n, was := got[j.ID].Units, s.Waiting[j.ID-1]
			if e := j.Estimates[0]; n > 0 && j.Spec.NodeRange.Max > 0 && (j.Spec.Nodes != n || j.Spec.GPUs != was.Spec.GPUs || e.CPUMilli != 2000 || e.Duration >= time.Hour) {
				t.Errorf("%s: with %d nodes it is %+v, %+v", name, n, j.Spec, e)
			}
		}
	}
}

func TestRestartsOfGangs(t *testing.T) {
	t.Parallel()
	const long = elastic.Every
	for name, tc := range map[string]struct {
		idle        []int
		make        func(s *dispatch.Snapshot)
		grows, for_ bool
	}{
		"more nodes are idle":           {[]int{0, 0, 2}, func(s *dispatch.Snapshot) { onNodes(s, long, "n0", "n1") }, true, false},
		"only nodes that it has":        {[]int{2, 2, 1}, func(s *dispatch.Snapshot) { onNodes(s, long, "n0", "n1") }, false, false},
		"it began a moment ago":         {[]int{0, 0, 2}, func(s *dispatch.Snapshot) { onNodes(s, long-1, "n0", "n1") }, false, false},
		"it has all that it can use":    {[]int{0, 0, 0, 0, 4}, func(s *dispatch.Snapshot) { onNodes(s, long, "n0", "n1", "n2", "n3") }, false, false},
		"somebody waits":                {[]int{0, 0}, func(s *dispatch.Snapshot) { onNodes(s, long, "n0", "n1"); waits(s, 2, 2, time.Hour) }, false, true},
		"a gang waits":                  {[]int{0, 0, 0}, func(s *dispatch.Snapshot) { onNodes(s, long, "n0", "n1", "n2"); gang(s, 2, 0, 2, time.Hour) }, false, true},
		"a gang waits for more":         {[]int{0, 0, 0}, func(s *dispatch.Snapshot) { onNodes(s, long, "n0", "n1", "n2"); gang(s, 3, 0, 2, time.Hour) }, false, false},
		"a range waits":                 {[]int{0, 0, 0}, func(s *dispatch.Snapshot) { onNodes(s, long, "n0", "n1", "n2"); gang(s, 1, 4, 2, time.Hour) }, false, true},
		"a range of GPUs waits":         {[]int{0, 0, 0}, func(s *dispatch.Snapshot) { onNodes(s, long, "n0", "n1", "n2"); waits(s, 1, 4, time.Hour) }, false, true},
		"there is room, and yet":        {[]int{0, 0, 2}, func(s *dispatch.Snapshot) { onNodes(s, long, "n0", "n1"); waits(s, 2, 2, time.Hour) }, false, false},
		"nodes of another partition":    {[]int{0, 0, 2}, func(s *dispatch.Snapshot) { onNodes(s, long, "n0", "n1").Spec.Partition = "p"; parts(s, "p", "n[0-1]") }, false, false},
		"nodes of its partition":        {[]int{0, 0, 2}, func(s *dispatch.Snapshot) { onNodes(s, long, "n0", "n1").Spec.Partition = "p"; parts(s, "p", "n[0-2]") }, true, false},
		"it has the least that it uses": {[]int{0}, func(s *dispatch.Snapshot) { onNodes(s, long, "n0"); waits(s, 2, 2, time.Hour) }, false, false},
	} {
		s := world(tc.idle...)
		tc.make(s)
		got := (elastic.Rules{}).Restarts(s, s.Ledger.Clone(), &dispatch.Plan{})
		if n := len(got); n != map[bool]int{true: 1}[tc.grows || tc.for_] || n == 1 && (got[0].For != 0) != tc.for_ {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestSizesKeepToBounds: nobody has more GPUs than a job of its partition may have, nor
// than its account's may.
func TestSizesKeepToBounds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		partition, quota int64
		gpus, nodes      int
	}{{0, 0, 4, 2}, {3, 0, 3, 1}, {0, 3, 3, 1}, {2, 3, 2, 1}, {4, 3, 3, 1}, {1, 0, 1, 1}} {
		for _, span := range []bool{false, true} {
			s := world(4, 4)
			var j *cluster.Job
			want := tc.gpus
			if span {
				j, want = gang(s, 1, 2, 2, time.Hour), tc.nodes
			} else {
				j = waits(s, 1, 8, time.Hour)
			}
			parts(s, "p", "n[0-1]")
			s.Partitions[0].MaxGPUs, j.Spec.Partition, j.Owner.UID = tc.partition, "p", 7
			if tc.quota > 0 {
				q := accounting.Quota{Subject: accounting.Subject{User: true, UID: 7}, Limits: accounting.Limits{MaxGPUs: tc.quota}}
				s.Limits = accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{q.Subject: &q}, nil)
			}
			if n := max(1, (elastic.Rules{}).Sizes(s)[j.ID].Units); n != want {
				t.Errorf("partition %d, quota %d, on nodes %t: %d, want %d", tc.partition, tc.quota, span, n, want)
			}
		}
	}
}

func parts(s *dispatch.Snapshot, name, nodes string) {
	list, err := cluster.ParseHostList(nodes)
	if err != nil {
		panic(err)
	}
	s.Partitions = append(s.Partitions, &cluster.Partition{Name: name, Nodes: list})
}

// TestGangsAreOfOneType: a gang of a range grows by nodes with GPUs of one type, those of
// which most have room.
func TestGangsAreOfOneType(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ idle, other, least, gets int }{{2, 3, 1, 3}, {3, 2, 1, 3}, {1, 1, 2, 2}, {2, 2, 3, 3}, {3, 4, 3, 4}} {
		s := world(append(make([]int, tc.idle), make([]int, tc.other)...)...)
		s.Ledger = dispatch.NewLedger(nil)
		for i, n := range s.Nodes {
			if i >= tc.idle {
				for k := range n.GPUs {
					n.GPUs[k].Type = "H100"
				}
			}
			s.Ledger.SetNode(n)
		}
		j := gang(s, tc.least, 6, 2, time.Hour)
		if n := max(tc.least, (elastic.Rules{}).Sizes(s)[j.ID].Units); n != tc.gets {
			t.Errorf("%d nodes of one type and %d of another: %d for at least %d, want %d", tc.idle, tc.other, n, tc.least, tc.gets)
		}
	}
}
