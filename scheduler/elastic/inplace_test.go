package elastic_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/elastic"
)

// inPlace is onNodes of a job to which nodes come and which they leave while it runs: it
// has the first two cards of each.
func inPlace(s *dispatch.Snapshot, since time.Duration, nodes ...cluster.NodeID) *cluster.Job {
	j := onNodes(s, since, nodes...)
	j.Spec.InPlace = true
	a := j.Live()
	on := func(n cluster.NodeID) (b cluster.Berth) {
		b.Node, b.CPUMilli, b.MemMiB = n, 2000, 4000
		for k := range 2 {
			b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: cluster.GPUID(fmt.Sprint(n, "-g", k)), Share: cluster.Share{MemMiB: 15_000, Milli: 1000, Exclusive: true}})
		}
		return b
	}
	a.Berth, a.Gang, a.GPUMilli = on(nodes[0]), &cluster.Gang{Go: true, Parts: []cluster.Part{{State: cluster.JobRunning}}}, int64(2000*len(nodes))
	for _, n := range nodes[1:] {
		a.Gang.Rest = append(a.Gang.Rest, on(n))
		a.Gang.Parts = append(a.Gang.Parts, cluster.Part{State: cluster.JobRunning})
	}
	return j
}

// TestChangesInPlace: who asked for it gets and gives up nodes, by the same rules as others
// begin again, and never its first one.
func TestChangesInPlace(t *testing.T) {
	t.Parallel()
	const long = elastic.Every
	for name, tc := range map[string]struct {
		idle []int
		make func(s *dispatch.Snapshot)
		want string
	}{
		"idle nodes come to it": {[]int{2, 2, 3, 1}, func(s *dispatch.Snapshot) { inPlace(s, long, "n0") }, "+n1,n2"},
		"not to who is new":     {[]int{2, 2}, func(s *dispatch.Snapshot) { inPlace(s, long-1, "n0") }, ""},
		"not soon after a change": {[]int{2, 2}, func(s *dispatch.Snapshot) {
			inPlace(s, long, "n0").Live().Changes = []cluster.SizeChange{{At: now.Add(time.Second - long)}}
		}, ""},
		"ten minutes after one": {[]int{2, 2}, func(s *dispatch.Snapshot) {
			inPlace(s, 2*long, "n0").Live().Changes = []cluster.SizeChange{{At: now.Add(-long)}}
		}, "+n1"},
		"without its cores no node comes": {[]int{2, 2}, func(s *dispatch.Snapshot) { inPlace(s, long, "n0").Live().Berth.CPUMilli = 1e9 }, ""},
		"a reserved one does not": {[]int{2, 2, 2}, func(s *dispatch.Snapshot) {
			inPlace(s, long, "n0")
			s.Reservations = append(s.Reservations, &dispatch.Reservation{Name: "r", Start: now, Duration: time.Hour, Nodes: list("n1"), Users: []string{"bob"}})
		}, "+n2"},
		"nor what its quota lacks": {[]int{2, 2, 2}, func(s *dispatch.Snapshot) {
			j := inPlace(s, long, "n0")
			j.Owner.UID = 7
			q := accounting.Quota{Subject: accounting.Subject{User: true, UID: 7}, Limits: accounting.Limits{GPUMilli: 4000}}
			s.Limits = accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{q.Subject: &q}, nil)
			s.Limits.Count(accounting.HolderOf(j), 1, 1, 2000)
		}, "+n1"},
		"what it has on loan begins again": {[]int{2, 2}, func(s *dispatch.Snapshot) { inPlace(s, long, "n0").Live().Loan = "p" }, "again"},
		"who did not ask begins again":     {[]int{2, 2}, func(s *dispatch.Snapshot) { inPlace(s, long, "n0").Spec.InPlace = false }, "again"},
		"it gives up the newest":           {[]int{0, 0, 0}, func(s *dispatch.Snapshot) { inPlace(s, long, "n0", "n1", "n2"); waits(s, 2, 2, time.Hour) }, "-n2"},
		"the one that helps":               {[]int{0, 2, 0}, func(s *dispatch.Snapshot) { inPlace(s, long, "n0", "n1", "n2"); waits(s, 4, 4, time.Hour) }, "-n1"},
		"two where one is not enough":      {[]int{0, 0, 0}, func(s *dispatch.Snapshot) { inPlace(s, long, "n0", "n1", "n2"); gang(s, 2, 0, 2, time.Hour) }, "-n1,n2"},
		"where only its first helps it begins again": {[]int{0, 0, 0}, func(s *dispatch.Snapshot) {
			inPlace(s, long, "n0", "n1", "n2")
			waits(s, 2, 2, time.Hour).Spec.Node = "n0"
		}, "again"},
		"its least it keeps": {[]int{0, 0, 0}, func(s *dispatch.Snapshot) {
			inPlace(s, long, "n0", "n1", "n2").Spec.NodeRange.Min = 3
			waits(s, 2, 2, time.Hour)
		}, ""},
		"what leaves is not its own": {[]int{0, 0, 0}, func(s *dispatch.Snapshot) {
			j := inPlace(s, long, "n0", "n1", "n2")
			j.Live().Gang.Parts[2].Left, j.Spec.Nodes = now.Add(-long), 2
			waits(s, 2, 2, time.Hour)
		}, "-n1"},
		"what brings it nothing": {[]int{0, 0, 0}, func(s *dispatch.Snapshot) {
			a := inPlace(s, 2*long, "n0", "n1", "n2").Live()
			a.Changes = []cluster.SizeChange{{At: now.Add(-long), From: 1, To: 3, StepTime: time.Second}}
			a.Progress = &cluster.Progress{At: now, Step: 9, StepTime: time.Second}
		}, "-n1,n2"},
		"unless it only seems so": {[]int{0, 0, 0}, func(s *dispatch.Snapshot) {
			a := inPlace(s, 2*long, "n0", "n1", "n2").Live()
			a.Changes = []cluster.SizeChange{{At: now.Add(-long), From: 1, To: 3, StepTime: time.Second}}
			a.Progress = &cluster.Progress{At: now.Add(-long), Step: 9, StepTime: time.Second} // of before
		}, ""},
	} {
		s := world(tc.idle...)
		tc.make(s)
		got := ""
		for _, p := range (elastic.Rules{}).Restarts(s, s.Ledger.Clone(), &dispatch.Plan{}) {
			switch {
			case len(p.Gets) > 0:
				for i, b := range p.Gets {
					got += map[bool]string{true: "+", false: ","}[i == 0] + string(b.Node)
					if first := s.Running[0].Live().Berth; len(b.GPUs) != 2 || b.CPUMilli != first.CPUMilli || b.MemMiB != first.MemMiB || b.GPUs[0].Share != first.GPUs[0].Share || s.Ledger.Fits(&b).Code != "" {
						t.Errorf("%s: %+v is not like its first", name, b)
					}
				}
			case len(p.Gives) > 0:
				for i, n := range p.Gives {
					got += map[bool]string{true: "-", false: ","}[i == 0] + string(n)
				}
			default:
				got = "again"
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func list(nodes string) cluster.HostList {
	l, err := cluster.ParseHostList(nodes)
	if err != nil {
		panic(err)
	}
	return l
}
