package policies

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// tried makes an attempt of so many minutes after the start of the world.
func tried(placed, ended time.Duration, state cluster.JobState) cluster.Attempt {
	zero := Now.Add(-100 * time.Hour)
	a := cluster.Attempt{State: state, Placed: zero.Add(placed), Started: zero.Add(placed)}
	if state.Terminal() {
		a.Ended = zero.Add(ended)
	}
	return a
}

// TestPromotion: what a job had is forgotten once it waited eight times as
// long as it ran since it was promoted last.
func TestPromotion(t *testing.T) {
	t.Parallel()
	const h, gone = time.Hour, cluster.JobPreempted
	for name, c := range map[string]struct {
		attempts []cluster.Attempt
		at       time.Duration // after the submit
		want     time.Duration
	}{
		"never ran":                     {nil, 50 * h, 0},
		"runs":                          {[]cluster.Attempt{tried(5*h, 0, cluster.JobRunning)}, 7 * h, 2 * h},
		"its first wait does not count": {[]cluster.Attempt{tried(50*h, 51*h, gone)}, 52 * h, h},
		"waits not long enough":         {[]cluster.Attempt{tried(0, h, gone)}, 9*h - 1, h},
		"waits long enough":             {[]cluster.Attempt{tried(0, h, gone)}, 9 * h, 0},
		"all that it ran counts":        {[]cluster.Attempt{tried(0, h, gone), tried(2*h, 3*h, gone)}, 18 * h, 2 * h},
		"and its waits do not add up":   {[]cluster.Attempt{tried(0, h, gone), tried(8*h, 9*h, gone)}, 16 * h, 2 * h},
		"was promoted and runs":         {[]cluster.Attempt{tried(0, h, gone), tried(9*h, 0, cluster.JobRunning)}, 10 * h, h},
		"was promoted and sank again":   {[]cluster.Attempt{tried(0, 4*h, gone), tried(40*h, 41*h, gone)}, 42 * h, h},
		"twice":                         {[]cluster.Attempt{tried(0, 4*h, gone), tried(40*h, 41*h, gone)}, 49 * h, 0},
		"what never began is no run":    {[]cluster.Attempt{tried(0, h, gone), {State: cluster.JobFailed, Placed: Now}}, 9 * h, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts{submitted: int64(Now.Add(-100 * h)), attempts: c.attempts}
			got := time.Duration(sincePromoted(&f, f.submitted+c.at.Microseconds(), 8)) * time.Microsecond
			if got.Round(time.Second) != c.want {
				t.Errorf("ran %s since it was promoted, want %s", got, c.want)
			}
		})
	}
}

// TestPromotedGoesFirst: in the order, where sites promote and where nobody does.
func TestPromotedGoesFirst(t *testing.T) {
	t.Parallel()
	sank := Job(1, Exclusive, Lasts(50*time.Hour), Waited(100*time.Hour))
	sank.Attempts = []cluster.Attempt{tried(0, 3*time.Hour, cluster.JobPreempted)}
	fresh := Job(2, Exclusive, Lasts(time.Hour))
	for _, c := range []struct {
		promote int64
		want    []cluster.JobID
	}{{0, []cluster.JobID{2, 1}}, {PromoteAfter, []cluster.JobID{1, 2}}} {
		e := engineOf(t, "firstfit+las", nil)
		e.opt.LAS.Promote = c.promote
		p := newPass(NewWorld([]*cluster.Node{Node("n1", 2, bigCard)}, sank, fresh).Snapshot(), e)
		var got []cluster.JobID
		for _, task := range p.sorted() {
			got = append(got, task.id)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("promote %d: order (-want +got):\n%s", c.promote, d)
		}
	}
}

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
			s.Terms = map[cluster.JobID]cluster.Terms{1: {Preemptible: true}}
			e := engineOf(t, "firstfit+las", nil)
			e.opt.MinRun = c.minRun
			p := newPass(s, e)
			if got := p.mayEnd(&run{job: j, began: int64(Now.Add(-20 * m))}); got != c.want {
				t.Errorf("may end: %t, want %t", got, c.want)
			}
		})
	}
}
