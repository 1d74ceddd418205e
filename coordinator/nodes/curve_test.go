package nodes

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// TestCurves: a curve has the first and the newest point and is as fine as there is room
// for, whatever its length; one that counts anew begins anew.
func TestCurves(t *testing.T) {
	t.Parallel()
	cs, id, now := curves{}, cluster.AttemptID{Job: 1, No: 1}, time.Unix(1_000_000_000, 0)
	if cs.of(id) != nil {
		t.Error("before it said anything there is a curve")
	}
	for n := int64(0); n < 100_000; n++ {
		cs.add(id, now, Point{n, float64(n)})
		cs.add(id, now, Point{n, -1}) // said already
		if n == 200 && len(cs.of(id)) != 201 {
			t.Errorf("after 201 points there are %d", len(cs.of(id)))
		}
	}
	got := cs.of(id)
	if n := len(got); n < curvePoints/2 || n > curvePoints+1 || got[0] != (Point{0, 0}) || got[n-1] != (Point{99_999, 99_999}) {
		t.Fatalf("%d points from %v to %v", n, got[0], got[n-1])
	}
	for i, p := range got[2 : len(got)-1] {
		if p.Step-got[i+1].Step != got[1].Step || p.Value != float64(p.Step) {
			t.Fatalf("after %v comes %v, and the second is %v", got[i+1], p, got[1])
		}
	}
	cs.add(id, now, Point{100_000, math.NaN()})
	cs.add(id, now, Point{100_000, math.Inf(1)})
	if last := cs.of(id); last[len(last)-1].Step != 99_999 {
		t.Errorf("what is no number is the newest: %v", last[len(last)-1])
	}
	cs.add(id, now, Point{7, 3})
	cs.add(id, now, Point{8, 4})
	if got := cs.of(id); !slices.Equal(got, []Point{{7, 3}, {8, 4}}) {
		t.Errorf("after it counted anew: %v", got)
	}
}

// TestCurvesAreBounded: those that are not added to make room, and no others.
func TestCurvesAreBounded(t *testing.T) {
	t.Parallel()
	cs, now := curves{}, time.Unix(1_000_000_000, 0)
	at := func(n int) cluster.AttemptID { return cluster.AttemptID{Job: cluster.JobID(n), No: 1} }
	for n := range curveJobs + 1 {
		cs.add(at(n), now, Point{1, 1})
	}
	if len(cs) != curveJobs || cs.of(at(curveJobs)) != nil {
		t.Errorf("%d curves", len(cs))
	}
	now = now.Add(curveKept + time.Second)
	cs.add(at(3), now, Point{2, 1})
	cs.add(at(curveJobs), now, Point{1, 1})
	if len(cs) != 2 || len(cs.of(at(3))) != 2 || cs.of(at(curveJobs)) == nil {
		t.Errorf("%d curves, and that which is added to is %v", len(cs), cs.of(at(3)))
	}
}
