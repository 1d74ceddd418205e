package caps_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

func at(ms int) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

// card is what card "g" shows: MiB by attempt, each in one process.
func card(procs ...gpu.Process) []gpu.Usage {
	u := gpu.Usage{UUID: "g", Processes: procs}
	for _, p := range procs {
		u.UsedMiB += max(0, p.MemMiB)
	}
	return []gpu.Usage{u}
}

func proc(attempt string, mib int64) gpu.Process {
	return gpu.Process{PID: 1, Attempt: attempt, MemMiB: mib}
}

func TestWatch(t *testing.T) {
	type sample struct {
		ms    int
		usage []gpu.Usage
	}
	var steady []sample
	for ms := 0; ms <= 4000; ms += 250 {
		steady = append(steady, sample{ms, card(proc("j1-a1", 1100), proc("j2-a1", 500))})
	}
	over := func(held int64, since int, urgent bool) caps.Breach {
		return caps.Breach{Attempt: "j1-a1", UUID: "g", HeldMiB: held, CapMiB: 1000, Since: at(since), Urgent: urgent}
	}
	for _, tc := range []struct {
		name    string
		samples []sample
		want    []caps.Breach
	}{
		{"under its cap", []sample{{0, card(proc("j1-a1", 1000))}, {9000, card(proc("j1-a1", 1000))}}, nil},
		{"within the slack", []sample{{0, card(proc("j1-a1", 1050))}, {9000, card(proc("j1-a1", 1050))}}, nil},
		{"for three seconds, once", steady, []caps.Breach{over(1100, 0, false)}},
		{"for less", steady[:12], nil},
		{"down again in between", []sample{{0, card(proc("j1-a1", 1100))}, {2900, card(proc("j1-a1", 900))}, {3000, card(proc("j1-a1", 1100))}, {5900, card(proc("j1-a1", 1100))}}, nil},
		{"several processes", []sample{{0, card(proc("j1-a1", 600), proc("j1-a1", 500))}, {3000, card(proc("j1-a1", 600), proc("j1-a1", 520))}}, []caps.Breach{over(1120, 0, false)}},
		{"figures that are not there count for nothing", []sample{{0, card(proc("j1-a1", gpu.Unknown))}, {3000, card(proc("j1-a1", gpu.Unknown))}}, nil},
		{"a full card is urgent", []sample{{0, card(proc("j1-a1", 1100), proc("j2-a1", 8500))}}, []caps.Breach{over(1100, 0, true)}},
		{"a card that will be full in an instant", []sample{{0, card(proc("j1-a1", 900), proc("j2-a1", 4000))}, {250, card(proc("j1-a1", 3400), proc("j2-a1", 4000))}}, []caps.Breach{over(3400, 250, true)}},
		{"a full card and nobody above", []sample{{0, card(proc("j1-a1", 1000), proc("j2-a1", 8900))}}, nil},
		{"urgent later", append(steady[:14:14], sample{3500, card(proc("j1-a1", 9500))}, sample{3600, card(proc("j1-a1", 9600))}),
			[]caps.Breach{over(1100, 0, false), over(9500, 0, true)}},
		{"others are not watched", []sample{{0, card(proc("j9-a1", 9900))}, {5000, card(proc("", 9900))}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := caps.NewWatcher(caps.WatchConfig{SlackMilli: 1050, For: 3 * time.Second, FloorMiB: 512})
			w.SetUsable(map[string]int64{"g": 10_000})
			w.Hold("j1-a1", map[string]caps.Cap{"g": {MiB: 1000}})
			w.Hold("j2-a1", map[string]caps.Cap{"g": {MiB: 8600}})
			var got []caps.Breach
			for _, s := range tc.samples {
				got = append(got, w.Observe(at(s.ms), s.usage)...)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("breaches (-want +got):\n%s", d)
			}
		})
	}
}

// TestWatchEndsOnlyWhoIsAbove: in any history nobody is ended who was never
// above his cap, and who is above it long enough always is.
func TestWatchEndsOnlyWhoIsAbove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := caps.NewWatcher(caps.DefaultWatch())
		w.SetUsable(map[string]int64{"g": 8000})
		limit := map[string]int64{"a": 1000, "b": 3000, "c": 0}
		for id, mib := range limit {
			w.Hold(id, map[string]caps.Cap{"g": {MiB: mib}})
		}
		since := map[string]int{}
		ended := map[string]bool{}
		for i := range rapid.IntRange(1, 60).Draw(t, "samples") {
			ms := i * 250
			var procs []gpu.Process
			for id, mib := range limit {
				held := rapid.Int64Range(0, 3500).Draw(t, id)
				procs = append(procs, proc(id, held))
				if first, was := since[id]; mib == 0 || held*1000 <= mib*1050 {
					delete(since, id)
				} else if !was {
					since[id] = ms
				} else if ms-first >= 3000 {
					ended[id] = false // must be, if it was not before
				}
			}
			for _, b := range w.Observe(at(ms), card(procs...)) {
				if _, above := since[b.Attempt]; !above {
					t.Fatalf("%s was ended and is not above its cap", b.Attempt)
				}
				if b.HeldMiB <= b.CapMiB {
					t.Fatalf("%+v is no breach", b)
				}
				ended[b.Attempt] = true
				w.Drop(b.Attempt)
				delete(limit, b.Attempt)
				delete(since, b.Attempt)
			}
			for id, ok := range ended {
				if !ok {
					t.Fatalf("%s was above its cap for 3 s and was not ended", id)
				}
			}
		}
	})
}

// TestWatchLendsWhatIsFree: an attempt whose share was cut may hold what it was granted
// while nobody else is promised that; once somebody is, it is held to what is left.
func TestWatchLendsWhatIsFree(t *testing.T) {
	w := caps.NewWatcher(caps.WatchConfig{SlackMilli: 1000, For: 3 * time.Second, FloorMiB: 512})
	w.SetUsable(map[string]int64{"g": 10_000})
	w.Hold("cut", map[string]caps.Cap{"g": {MiB: 1000, MostMiB: 8000}})
	for ms := 0; ms <= 9000; ms += 1000 {
		if b := w.Observe(at(ms), card(proc("cut", 8000))); len(b) > 0 {
			t.Fatalf("alone on the card it is ended at %d ms: %v", ms, b)
		}
	}
	w.Hold("other", map[string]caps.Cap{"g": {MiB: 2000}})
	if b := w.Observe(at(13_000), card(proc("cut", 8000), proc("other", 2000))); len(b) > 0 {
		t.Errorf("both are within what they were granted: %v", b)
	}
	w.Hold("third", map[string]caps.Cap{"g": {MiB: 1500}})
	var got []caps.Breach
	for ms := 14_000; ms <= 17_000; ms += 1000 {
		got = append(got, w.Observe(at(ms), card(proc("cut", 7000), proc("other", 2000)))...)
	}
	if len(got) != 1 || got[0].Attempt != "cut" || got[0].CapMiB != 6500 || got[0].Urgent {
		t.Errorf("it is held to what is nobody's: %v", got)
	}
}

// TestLoansAreBounded by what was granted, by what others hold and by what they are
// promised.
func TestLoansAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		other caps.Cap
		holds int64 // the other
		want  int64 // the most that the one that was cut may hold
	}{
		"nobody else":                {caps.Cap{MiB: 1}, 0, 8000},
		"much is promised":           {caps.Cap{MiB: 6000}, 500, 4000},
		"more is held than promised": {caps.Cap{MiB: 2000}, 7500, 2500},
		"no less than its own":       {caps.Cap{MiB: 9900}, 9900, 1000},
		"another one that was cut":   {caps.Cap{MiB: 3000, MostMiB: 9000}, 3000, 7000},
	} {
		for _, over := range []int64{0, 1} {
			w := caps.NewWatcher(caps.WatchConfig{SlackMilli: 1000, For: time.Second, FloorMiB: -1 << 30})
			w.SetUsable(map[string]int64{"g": 10_000})
			w.Hold("cut", map[string]caps.Cap{"g": {MiB: 1000, MostMiB: 8000}})
			w.Hold("other", map[string]caps.Cap{"g": c.other})
			ended := false
			for ms := 0; ms <= 3000; ms += 500 {
				for _, b := range w.Observe(at(ms), card(proc("cut", c.want+over), proc("other", c.holds))) {
					ended = ended || b.Attempt == "cut"
				}
			}
			if ended != (over > 0) {
				t.Errorf("%s: with %d MiB above %d it is ended: %t", name, over, c.want, ended)
			}
		}
	}
}

// TestWatchAgain: who was let go after it was found out is found out again, and caps
// that are given anew leave what was seen.
func TestWatchAgain(t *testing.T) {
	w := caps.NewWatcher(caps.WatchConfig{SlackMilli: 1000, For: time.Second, FloorMiB: 100})
	w.SetUsable(map[string]int64{"g": 10_000})
	w.Hold("a", map[string]caps.Cap{"g": {MiB: 1000}})
	var found []int
	for i, held := range []int64{1100, 1100, 1100, 900, 1100, 1100, 1100} {
		if len(w.Observe(at(i*500), card(proc("a", held)))) > 0 {
			found = append(found, i)
		}
	}
	if d := cmp.Diff([]int{2, 6}, found); d != "" {
		t.Errorf("found out at %s", d)
	}
	w.Hold("a", map[string]caps.Cap{"g": {MiB: 2000}})
	if h, ok := w.Peak("a", at(3000)); !ok || h.PeakMiB != 1100 {
		t.Errorf("with another cap its peak is %+v", h)
	}
	// What it grew by since the last look counts twice against what is free.
	w = caps.NewWatcher(caps.WatchConfig{SlackMilli: 1000, For: time.Hour, FloorMiB: 100})
	w.SetUsable(map[string]int64{"g": 10_000})
	w.Hold("a", map[string]caps.Cap{"g": {MiB: 1000}})
	for i, c := range []struct {
		held, other int64
		urgent      bool
	}{{900, 100, false}, {1900, 5999, false}, {2900, 5001, true}} {
		bs := w.Observe(at(i*500), card(proc("a", c.held), proc("b", c.other)))
		if urgent := len(bs) > 0 && bs[0].Urgent; urgent != c.urgent {
			t.Errorf("at %d MiB beside %d: urgent %t", c.held, c.other, urgent)
		}
	}
}

func TestPeakAndBlame(t *testing.T) {
	w := caps.NewWatcher(caps.DefaultWatch())
	w.SetUsable(map[string]int64{"g": 10_000, "h": 10_000})
	w.Hold("a", map[string]caps.Cap{"g": {MiB: 1000}, "h": {MiB: 1000}})
	w.Hold("b", map[string]caps.Cap{"g": {MiB: 2000}})
	w.Hold("whole", map[string]caps.Cap{"h": {}})
	both := append(card(proc("a", 400), proc("b", 2500)), gpu.Usage{UUID: "h", Processes: []gpu.Process{proc("a", 980), proc("whole", 9800)}})
	w.Observe(at(0), both)
	for _, tc := range []struct {
		name, attempt string
		ms            int
		want          caps.Held
		ok            bool
	}{
		{"the card that was nearest its cap", "a", 1000, caps.Held{UUID: "h", LimitMiB: 1000, PeakMiB: 980, Near: true}, true},
		{"near, but long ago", "a", 60_000, caps.Held{UUID: "h", LimitMiB: 1000, PeakMiB: 980}, true},
		{"above its cap", "b", 0, caps.Held{UUID: "g", LimitMiB: 2000, PeakMiB: 2500, Near: true}, true},
		{"a whole card is held to the card", "whole", 0, caps.Held{UUID: "h", LimitMiB: 10_000, PeakMiB: 9800, Near: true}, true},
		{"nobody", "x", 0, caps.Held{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, ok := w.Peak(tc.attempt, at(tc.ms)); got != tc.want || ok != tc.ok {
				t.Errorf("got %+v, %t, want %+v, %t", got, ok, tc.want, tc.ok)
			}
		})
	}
	if got := w.Blame("g", "a", at(5000)); got != "b" {
		t.Errorf("blames %q, want b", got)
	}
	if got := w.Blame("g", "b", at(5000)); got != "" {
		t.Errorf("blames %q, want nobody: b does not accuse itself", got)
	}
	if w.Drop("b"); w.Blame("g", "a", at(5000)) != "b" || w.Blame("g", "a", at(60_000)) != "" {
		t.Error("who is gone is to blame for a while, and no longer")
	}
}

func TestSuggest(t *testing.T) {
	for _, tc := range []struct{ peak, limit, want int64 }{
		{900, 1000, 1280}, {1000, 1000, 1280}, {5000, 4096, 5632}, {21_000, 8192, 23_552}, {0, 0, 256}, {7800, 7800, 9216},
	} {
		if got := caps.Suggest(tc.peak, tc.limit); got != tc.want {
			t.Errorf("Suggest(%d, %d) = %d, want %d", tc.peak, tc.limit, got, tc.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		peak, limit := rapid.Int64Range(0, 1<<21).Draw(t, "peak"), rapid.Int64Range(0, 1<<21).Draw(t, "cap")
		if got := caps.Suggest(peak, limit); got <= peak || got <= limit || got > max(peak, limit)*11/10+256+1024 {
			t.Fatalf("Suggest(%d, %d) = %d", peak, limit, got)
		}
	})
}
