package idle

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

const t0 = cluster.Time(1_700_000_000_000_000)

func policy() cluster.IdlePolicy {
	return cluster.IdlePolicy{BelowMilli: 50, Window: 10 * time.Minute, Warn: 20 * time.Minute, Shrink: 30 * time.Minute, End: time.Hour, MaxOK: time.Hour}
}

// play adds a sample a minute, of the utilization that use tells, -1 for unknown.
func play(w *Window, from cluster.Time, minutes int, start Sample, use func(minute int) int64) (Sample, []Verdict, cluster.Time) {
	var vs []Verdict
	var since cluster.Time
	s := start
	for i := range minutes {
		s.At = from.Add(time.Duration(i+1) * time.Minute)
		if u := use(i); u >= 0 {
			s.BusyMs, s.KnownMs = s.BusyMs+u*60_000, s.KnownMs+60_000
		}
		v, at := w.Add(s, policy(), 1)
		vs, since = append(vs, v), at
	}
	return s, vs, since
}

func TestAWindowFallsIdle(t *testing.T) {
	var w Window
	_, vs, since := play(&w, t0, 40, Sample{At: t0}, func(m int) int64 {
		if m < 15 {
			return 800
		}
		return 0
	})
	for i, v := range vs {
		want := Idle
		switch {
		case i < 10:
			want = Unknown
		case i < 24: // the last busy minute has left the window, but for less than 5 %
			want = Busy
		}
		if v != want {
			t.Errorf("after minute %d: %d, want %d", i+1, v, want)
		}
	}
	if got := since.Sub(t0); got != 15*time.Minute {
		t.Errorf("idle since %s, want 15 m", got)
	}
}

func TestWhatIsNotKnownIsNotIdle(t *testing.T) {
	var w Window
	_, vs, _ := play(&w, t0, 60, Sample{At: t0}, func(m int) int64 {
		if m%5 == 0 { // a fifth is missing
			return -1
		}
		return 0
	})
	for i, v := range vs {
		if v != Unknown {
			t.Fatalf("after minute %d: %d", i+1, v)
		}
	}
	var hung Window
	if _, vs, _ := play(&hung, t0, 60, Sample{At: t0}, func(int) int64 { return -1 }); vs[59] != Unknown {
		t.Error("a hung driver is taken for idle")
	}
}

// TestANewLeaderGoesOn where the mark of the one before it ended, unless the GPUs
// were busy meanwhile.
func TestANewLeaderGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		use  int64
		want Verdict
	}{"idle meanwhile": {0, Idle}, "busy meanwhile": {500, Busy}} {
		var w Window
		mark := &cluster.IdleMark{Stage: cluster.IdleWarned, Since: t0.Add(-time.Hour), At: t0, BusyMs: 77, KnownMs: 99}
		w.Resume(mark)
		_, vs, since := play(&w, t0, 12, Sample{t0, 77, 99}, func(int) int64 { return c.use })
		if vs[11] != c.want || c.want == Idle && since != mark.Since {
			t.Errorf("%s: %d since %s before", name, vs[11], t0.Sub(since))
		}
	}
}

// TestWindowsAgreeWithCounting: against the plain mean over the last window, for
// any use and any gaps.
func TestWindowsAgreeWithCounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w Window
		p := policy()
		use := rapid.SliceOfN(rapid.SampledFrom([]int64{-1, 0, 0, 0, 20, 49, 50, 60, 1000}), 11, 90).Draw(t, "use")
		_, vs, _ := play(&w, t0, len(use), Sample{At: t0}, func(m int) int64 { return use[m] })
		for i := 10; i < len(use); i++ {
			busy, known := int64(0), int64(0)
			for _, u := range use[i-9 : i+1] {
				if u >= 0 {
					busy, known = busy+u, known+1
				}
			}
			want := Idle
			switch {
			case known < 9:
				want = Unknown
			case busy >= p.BelowMilli*known:
				want = Busy
			}
			if vs[i] != want {
				t.Fatalf("after minute %d of %v: %d, want %d", i+1, use, vs[i], want)
			}
		}
		if len(w.samples) > mostSamples {
			t.Fatalf("%d samples are kept", len(w.samples))
		}
	})
}
