package scheduler_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// longer is a job that is not short beside the others.
const longer = cluster.JobID(77)

// asShort makes all who wait in queues, but the old, short beside the others.
func asShort(w *World) {
	for _, q := range w.Queues {
		for i := range q {
			if !scheduler.RankIsOld(q[i].Rank) && q[i].Job != longer {
				q[i].Rank = 1<<58 + q[i].Rank%(1<<58)
			}
		}
	}
}

func TestOnRelease(t *testing.T) {
	t.Parallel()
	m := time.Minute
	for _, c := range []struct {
		name string
		w    *World
		jobs []*cluster.Job
		free []cluster.GPUID
		want []string
	}{
		{
			"the head starts, and as many behind it as fit",
			NewWorld([]*cluster.Node{Node("n1", 1, a100)}),
			[]*cluster.Job{
				Job(1, Mem(30000), Util(300), queued("n1-00", 0)), Job(2, Mem(30000), Util(300), queued("n1-00", 0)),
				Job(3, Mem(30000), Util(300), queued("n1-00", 0)), Job(4, Mem(20000), Util(300), queued("n1-00", 0)),
			},
			[]cluster.GPUID{"n1-00"},
			[]string{"j1 on n1-00:30000/300", "j2 on n1-00:30000/300", "j4 on n1-00:20000/300 (job 3: needs 30000 MiB, 20000 free)"},
		},
		{
			"nobody passes a head that is old",
			busy([]*cluster.Node{Node("n1", 2, a100)}, 0, 10),
			[]*cluster.Job{Job(1, GPUs(2), Exclusive, Waited(5*time.Hour), queued("n1-00", -11*m)), Job(2, Mem(1), Util(1), queued("n1-00", 0))},
			[]cluster.GPUID{"n1-00"},
			[]string{},
		},
		{
			"nor takes a GPU of its node that it waits for",
			busy([]*cluster.Node{Node("n1", 3, a100)}, 10, 10, 0),
			[]*cluster.Job{Job(1, GPUs(2), Exclusive, Waited(5*time.Hour), queued("n1-00", -11*m)), Job(2, Mem(1), Util(1), queued("n1-02", 0))},
			[]cluster.GPUID{"n1-02"},
			[]string{},
		},
		{
			"an older one may",
			busy([]*cluster.Node{Node("n1", 3, a100)}, 10, 10, 0),
			[]*cluster.Job{Job(1, GPUs(2), Exclusive, Waited(5*time.Hour), queued("n1-00", -11*m)), Job(2, Mem(1), Util(1), Waited(6*time.Hour), queued("n1-02", 0))},
			[]cluster.GPUID{"n1-02"},
			[]string{"j2 on n1-02:1/1"},
		},
		{
			"nor takes the cores that a head needs",
			busy([]*cluster.Node{Node("n1", 2, a100, Host(3000, 1<<20))}, 10, 0),
			[]*cluster.Job{Job(1, Exclusive, Cores(2000), Waited(5*time.Hour), queued("n1-00", -11*m)), Job(2, Mem(1), Util(1), queued("n1-01", 0))},
			[]cluster.GPUID{"n1-01"},
			[]string{},
		},
		{
			"several GPUs start when the last is free",
			NewWorld([]*cluster.Node{Node("n1", 4, a100)}),
			[]*cluster.Job{Job(1, GPUs(3), Exclusive, queued("n1-01", 0))},
			[]cluster.GPUID{"n1-01"},
			[]string{"j1 on n1-00:whole n1-01:whole n1-02:whole"},
		},
		{
			"passing who waits for one of the others",
			busy([]*cluster.Node{Node("n1", 2, a100)}),
			[]*cluster.Job{Job(1, Exclusive, queued("n1-00", 0)), Job(2, GPUs(2), Exclusive, queued("n1-01", 0))},
			[]cluster.GPUID{"n1-01"},
			[]string{"j2 on n1-00:whole n1-01:whole (job 1: stands in another queue of the node)"},
		},
		{
			"passing nobody whom the same plan starts",
			NewWorld([]*cluster.Node{Node("n1", 2, a100)}),
			[]*cluster.Job{Job(1, Mem(30000), Util(300), queued("n1-00", 0)), Job(2, GPUs(2), Mem(30000), Util(300), queued("n1-01", 0))},
			[]cluster.GPUID{"n1-00", "n1-01"},
			[]string{"j1 on n1-00:30000/300", "j2 on n1-00:30000/300 n1-01:30000/300"},
		},
		{
			"one plan does not give the same twice",
			NewWorld([]*cluster.Node{Node("n1", 2, a100, Host(1000, 1<<20))}),
			[]*cluster.Job{Job(1, Exclusive, queued("n1-00", 0)), Job(2, Exclusive, queued("n1-01", 0))},
			[]cluster.GPUID{"n1-00", "n1-01"},
			[]string{"j1 on n1-00:whole"},
		},
		{
			"who is not short is left to the pass, and so is who stands behind",
			NewWorld([]*cluster.Node{Node("n1", 1, a100)}),
			[]*cluster.Job{Job(1, Mem(30000), Util(300), queued("n1-00", 0)), Job(longer, Mem(1), Util(1), queued("n1-00", 0))},
			[]cluster.GPUID{"n1-00"},
			[]string{"j1 on n1-00:30000/300"},
		},
		{
			"a drained node starts nobody",
			NewWorld([]*cluster.Node{Node("n1", 1, a100, Drained)}),
			[]*cluster.Job{Job(1, Exclusive, queued("n1-00", 0))},
			[]cluster.GPUID{"n1-00"},
			[]string{},
		},
		{
			"unknown GPUs and empty queues are no fault",
			NewWorld([]*cluster.Node{Node("n1", 1, a100)}), nil,
			[]cluster.GPUID{"n1-00", "gone"},
			[]string{},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, j := range c.jobs {
				c.w.Submit(j)
			}
			asShort(c.w)
			before := c.w.Ledg.Clone()
			p := scheduler.OnRelease(c.w, c.free, scheduler.Default())
			if d := cmp.Diff(c.want, decisions(p)); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
			if !before.Equal(c.w.Ledg) {
				t.Error("the ledger of the view was changed")
			}
			c.w.Apply(&p)
			if err := c.w.Check(); err != nil || len(c.w.Rejected) > 0 {
				t.Errorf("applied: %v, rejected %v", err, c.w.Rejected)
			}
		})
	}
}
