package nodes

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/series"
)

func TestSeries(t *testing.T) {
	s, now := shown{}, time.Unix(1_000_000_000, 0)
	say := func(after time.Duration, mib, util, watts int64) {
		now = now.Add(after)
		s.ring("g").Add(now, series.Reading{UsedMiB: mib, UtilMilli: util, PowerW: watts})
	}
	say(0, 100, 200, 100)
	say(2*time.Second, 300, 400, 0)
	say(2*time.Second, 50, -1, 300)
	say(10*time.Second, 70, -1, 0)
	say(20*time.Second, -5, 5000, 1<<40)
	say(10*time.Second, 0, 100, 50)
	say(time.Second, 0, 300, 0)
	say(time.Second, 0, 800, 150)
	want := []series.Sample{
		{At: 1_000_000_000, UsedMiB: 300, UtilMilli: 300, PowerW: 200},
		{At: 1_000_000_010, UsedMiB: 70, UtilMilli: -1},
		{At: 1_000_000_030, UtilMilli: 1000, PowerW: 1<<16 - 1},
		{At: 1_000_000_040, UtilMilli: 400, PowerW: 100},
	}
	if d := cmp.Diff(want, s.of("g", time.Unix(0, 0), now)); d != "" {
		t.Error(d)
	}
	if got := s.of("g", time.Unix(1_000_000_015, 0), time.Unix(1_000_000_029, 0)); len(got) != 1 || got[0].At != 1_000_000_010 {
		t.Errorf("a part of it: %v", got)
	}
	if got := s.of("other", time.Unix(0, 0), now); got != nil {
		t.Errorf("of a card that was never heard: %v", got)
	}
}

// TestSeriesAreBounded in time and in cards.
func TestSeriesAreBounded(t *testing.T) {
	s, now := shown{}, time.Unix(1_000_000_000, 0)
	for range 3*series.FineSteps + 7 {
		now = now.Add(series.FineStep)
		s.ring("g").Add(now, series.Reading{UsedMiB: 1})
	}
	got := s.of("g", time.Unix(0, 0), now)
	if len(got) != series.FineSteps || got[0].At != now.Add(-(series.FineSteps-1)*series.FineStep).Unix() || got[series.FineSteps-1].At != now.Unix() {
		t.Errorf("%d samples, from %v to %v", len(got), got[0], got[len(got)-1])
	}
	for i, m := range got[1:] {
		if m.At != got[i].At+int64(series.FineStep/time.Second) {
			t.Fatalf("a sample of %d comes after one of %d", m.At, got[i].At)
		}
	}
	for i := range seriesCards + 10 {
		s.ring(cluster.GPUID(fmt.Sprint(i)))
	}
	if len(s) != seriesCards {
		t.Errorf("%d cards are remembered", len(s))
	}
}
