package cluster_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
)

func TestProgressIsClipped(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := cluster.Progress{Step: rapid.Int64().Draw(t, "step"), Total: rapid.Int64().Draw(t, "total"), StepTime: time.Duration(rapid.Int64().Draw(t, "each"))}
		c := p.Clip()
		if c.Step < 0 || c.Step > cluster.MaxStep || c.Total != 0 && (c.Total < c.Step || c.Total > cluster.MaxStep) || c.StepTime < 0 || c.StepTime > cluster.MaxStepTime {
			t.Fatalf("%+v became %+v", p, c)
		}
		rest, ok := c.Rest()
		if ok != (c.Total > 0 && c.StepTime > 0) || rest < 0 || rest > cluster.MaxStepTime {
			t.Fatalf("%+v has %s left, %t", c, rest, ok)
		}
		if milli, ok := c.Milli(); ok && (milli < 0 || milli > 1000) {
			t.Fatalf("%+v has done %d thousandths", c, milli)
		}
	})
	var none *cluster.Progress
	if _, ok := none.Rest(); ok {
		t.Error("who said nothing has so much left")
	}
}

// TestProgressThatIsNews: a job that tells of each step is written down some twenty
// times, and at once when it will end at another time.
func TestProgressThatIsNews(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		total       int64
		each        func(step int64) time.Duration
		least, most int
	}{
		{"as foreseen", 10_000, func(int64) time.Duration { return time.Second }, 20, 22},
		{"few steps", 4, func(int64) time.Duration { return time.Hour }, 4, 4},
		{"slower from the middle on", 10_000, func(s int64) time.Duration { return time.Second * time.Duration(1+s/5000) }, 21, 24},
		{"nobody knows how many", 0, func(int64) time.Duration { return time.Second }, 15, 25},
	} {
		steps, said := max(c.total, 10_000), 0
		if c.total > 0 {
			steps = c.total
		}
		var known *cluster.Progress
		at := cluster.Time(1)
		for step := int64(1); step <= steps; step++ {
			at = at.Add(c.each(step))
			now := cluster.Progress{At: at, Step: step, Total: c.total, StepTime: c.each(step)}
			if known.News(now) {
				known, said = &now, said+1
			}
		}
		if said < c.least || said > c.most {
			t.Errorf("%s: %d times, want %d to %d", c.name, said, c.least, c.most)
		}
		if c.total > 0 && known.Step != c.total {
			t.Errorf("%s: the last that is known is step %d", c.name, known.Step)
		}
	}
	was := &cluster.Progress{At: 1, Step: 50, Total: 100, StepTime: time.Second}
	if !was.News(cluster.Progress{At: 2, Step: 1, Total: 100, StepTime: time.Second}) {
		t.Error("it began anew, and nobody hears")
	}
	if (*cluster.Progress)(nil).News(cluster.Progress{}) {
		t.Error("nothing is news")
	}
}
