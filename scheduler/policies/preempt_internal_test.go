package policies

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

const bigCard = "A100-SXM4-80GB"

// TestMayEndAgain: not while it makes room, and not before ten minutes have
// passed since it did.
func TestMayEndAgain(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	asked := func(ago time.Duration) *cluster.PreemptRequest { return &cluster.PreemptRequest{At: Now.Add(-ago)} }
	for name, c := range map[string]struct {
		first, live *cluster.PreemptRequest
		minRun      time.Duration
		want        bool
	}{
		"never preempted":       {nil, nil, 10 * m, true},
		"makes room":            {nil, asked(m), 10 * m, false},
		"did a moment ago":      {asked(10*m - 1), nil, m, false},
		"did long ago":          {asked(10 * m), nil, m, true},
		"where nobody compares": {asked(m), nil, -1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := Job(1, Exclusive, Waited(300*m))
			j.State = cluster.JobRunning
			j.Attempts = []cluster.Attempt{
				{No: 1, State: cluster.JobPreempted, Placed: Now.Add(-60 * m), Started: Now.Add(-60 * m), Ended: Now.Add(-30 * m), Preempt: c.first},
				{No: 2, State: cluster.JobRunning, Placed: Now.Add(-20 * m), Started: Now.Add(-20 * m), Preempt: c.live},
			}
			s := NewWorld([]*cluster.Node{Node("n1", 1, bigCard)}).Snapshot()
			s.Terms = map[cluster.JobID]dispatch.Terms{1: {Preemptible: true}}
			p, err := New("firstfit+las", Options{MinRun: c.minRun})
			if err != nil {
				t.Fatal(err)
			}
			if got := newPass(s, p.(*engine)).evictor.mayEnd(&mirror.Run{Job: j, Began: int64(Now.Add(-20 * m))}); got != c.want {
				t.Errorf("may end: %t, want %t", got, c.want)
			}
		})
	}
}
