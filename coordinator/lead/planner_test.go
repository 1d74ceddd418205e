package lead

import (
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
)

// TestPlannerTakesItsWorkOnce: what a pass was told of is not told to the next;
// what a pass puts off is.
func TestPlannerTakesItsWorkOnce(t *testing.T) {
	t.Parallel()
	p := &planner{fsm: fsm.New(fsm.Options{}), clock: time.Now, released: map[cluster.GPUID]struct{}{}, wake: make(chan struct{}, 1)}
	take := func(what string, gpus []cluster.GPUID, arrived, full bool) {
		t.Helper()
		g, a, f := p.takeWork()
		slices.Sort(g)
		if !slices.Equal(g, gpus) || a != arrived || f != full {
			t.Errorf("%s: took %v, arrived %t, full %t; want %v, %t, %t", what, g, a, f, gpus, arrived, full)
		}
	}
	p.note([]fsm.Change{{Job: 1, Released: []cluster.GPUID{"g1", "g2"}}})
	p.note([]fsm.Change{{Job: 2, Released: []cluster.GPUID{"g2"}}})
	take("two ended", []cluster.GPUID{"g1", "g2"}, true, false)
	take("nothing since", nil, false, false)
	p.note([]fsm.Change{{Job: 3, New: true}})
	take("one came", nil, true, false)
	p.keepArrived()
	take("put off", nil, true, false)
	p.note([]fsm.Change{{Node: "n1"}})
	take("a node changed", nil, false, true)
	p.keepFull()
	take("put off", nil, false, true)
	take("nothing since", nil, false, false)
	p.begins = cluster.TimeOf(time.Now().Add(-time.Second))
	take("the time of a job has come", nil, true, false)
}
