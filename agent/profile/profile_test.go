package profile

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func id(job uint64) cluster.AttemptID { return cluster.AttemptID{Job: cluster.JobID(job), No: 1} }

// lab is a recorder, a clock, and cards whose figures a test sets.
type lab struct {
	t    *testing.T
	path string
	r    *Recorder
	now  time.Time
	used map[string]*gpu.Usage
}

func newLab(t *testing.T, cards ...string) *lab {
	t.Parallel()
	l := &lab{t: t, path: filepath.Join(t.TempDir(), "profiles.json"), now: time.Now(), used: map[string]*gpu.Usage{}}
	for _, c := range cards {
		l.used[c] = &gpu.Usage{UUID: c, UtilMilli: gpu.Unknown, PowerW: gpu.Unknown, MemActivityMilli: gpu.Unknown, EnergyMJ: gpu.Unknown}
	}
	l.restart()
	return l
}

func (l *lab) restart() {
	if l.r != nil {
		l.r.save()
	}
	l.r = New(l.path, slog.New(slog.DiscardHandler))
}

func (l *lab) begin(job uint64, cards ...string) {
	l.r.Begin(Attempt{ID: id(job), Started: l.now, Cards: cards})
}

// on sets what a job's only process shows on a card.
func (l *lab) on(card string, job uint64, mem, util int64) {
	u, name := l.used[card], id(job).String()
	for i := range u.Processes {
		if u.Processes[i].Attempt == name {
			u.Processes[i].MemMiB, u.Processes[i].UtilMilli = mem, util
			return
		}
	}
	u.Processes = append(u.Processes, gpu.Process{PID: int(job), Attempt: name, MemMiB: mem, UtilMilli: util})
}

// pass lets time go by at four looks a second.
func (l *lab) pass(d time.Duration) {
	for end := l.now.Add(d); l.now.Before(end); {
		l.now = l.now.Add(250 * time.Millisecond)
		var all []gpu.Usage
		for _, c := range []string{"a", "b"} {
			if u := l.used[c]; u != nil {
				all = append(all, *u)
			}
		}
		l.r.Observe(l.now, all)
	}
}

func (l *lab) end(job uint64) *Result {
	l.t.Helper()
	res := l.r.End(id(job), l.now)
	if res == nil {
		l.t.Fatalf("nothing is known of job %d", job)
	}
	if again := l.r.End(id(job), l.now.Add(time.Hour)); cmp.Diff(res, again, protocmp.Transform()) != "" {
		l.t.Errorf("job %d: asked again, %+v, before %+v", job, again, res)
	}
	return res
}

func TestFiguresOfOneAttempt(t *testing.T) {
	l := newLab(t, "a", "b")
	l.used["a"].MemActivityMilli = 300
	l.begin(1, "a", "b")
	l.on("a", 1, 1000, 900)
	l.on("b", 1, 500, 100)
	l.pass(10 * time.Second)
	l.on("a", 1, 3000, 900)
	l.pass(30 * time.Second)
	l.on("a", 1, 200, 0) // its last part holds little
	l.on("b", 1, 200, 0)
	l.pass(2 * time.Second)
	got := l.end(1)
	want := &Result{
		GPUMemPeakMiB: 3000,
		Milli:         (900*40 + 100*40) / (2 * 42),
		Profile: &nodev1.Profile{
			GpuMemMeanMib: (1000*10 + 3000*30 + 200*2 + 21) / 42, GpuMemActivityMilli: 300, GpuP95Milli: got.Profile.GpuP95Milli,
			SampledMs: 42_000,
		},
	}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if p := got.Profile.GpuP95Milli; p < 900-BinMilli || p > 900+BinMilli {
		t.Errorf("95th percentile %d, want 900", p)
	}
}

// TestWhatTheDriverDoesNotTell: memory and utilization of processes are
// unknown; who is alone has what the card shows, and of others nothing is
// made up.
func TestWhatTheDriverDoesNotTell(t *testing.T) {
	l := newLab(t, "a")
	l.used["a"].UsedMiB, l.used["a"].UtilMilli = 4000, 700
	l.begin(1, "a")
	l.on("a", 1, gpu.Unknown, gpu.Unknown)
	l.pass(10 * time.Second)
	l.begin(2, "a")
	l.on("a", 2, gpu.Unknown, gpu.Unknown)
	l.pass(30 * time.Second)
	if got := l.end(1); got.GPUMemPeakMiB != 4000 || got.Milli != 700 || got.Profile.GpuMemMeanMib != 4000 {
		t.Errorf("alone for ten seconds: %+v", got)
	}
	if got := l.end(2); got.GPUMemPeakMiB != 0 || got.Milli != 0 || got.Profile.GpuP95Milli != 0 {
		t.Errorf("never alone: %+v", got)
	}
}

func TestEnergyIsSplit(t *testing.T) {
	for _, counter := range []bool{true, false} {
		t.Run(fmt.Sprintf("counter %t", counter), func(t *testing.T) {
			l := newLab(t, "a")
			u := l.used["a"]
			mj := int64(5_000_000)
			pass := func(seconds int, watts int64) {
				for range seconds * 4 {
					u.PowerW = watts
					if counter {
						mj += watts * 250
						u.EnergyMJ = mj
					}
					l.pass(250 * time.Millisecond)
				}
			}
			pass(60, 100) // nobody's
			l.begin(1, "a")
			l.on("a", 1, 100, 600)
			pass(10, 100)
			l.begin(2, "a")
			l.on("a", 2, 100, 200)
			pass(10, 100) // three quarters, one quarter
			l.on("a", 1, 100, 0)
			l.on("a", 2, 100, 0)
			pass(10, 100) // nobody computes: evenly
			one, two := l.end(1).Profile.EnergyJ, l.end(2).Profile.EnergyJ
			if one != 1000+750+500 || two != 250+500 {
				t.Errorf("got %d and %d J, want 2250 and 750", one, two)
			}
			pass(60, 100) // nobody's again
			l.begin(3, "a")
			pass(10, 100)
			if three := l.end(3).Profile.EnergyJ; three != 1000 {
				t.Errorf("the next one: got %d J, want 1000", three)
			}
		})
	}
}

func TestNeighboursOverTime(t *testing.T) {
	l := newLab(t, "a", "b")
	l.begin(1, "a")
	l.on("a", 1, 100, 500)
	l.pass(10 * time.Second)
	l.begin(2, "a", "b")
	l.on("a", 2, 100, 300)
	l.on("b", 2, 100, 900) // not shared with 1
	l.pass(20 * time.Second)
	l.begin(3, "b")
	l.on("b", 3, 100, 50)
	l.pass(5 * time.Second)
	two := l.end(2)
	l.used["a"].Processes = l.used["a"].Processes[:1]
	l.pass(10 * time.Second)
	span := func(job uint64, from, length time.Duration, milli int64) *nodev1.NeighbourSpan {
		return &nodev1.NeighbourSpan{Job: job, FromMs: from.Milliseconds(), ForMs: length.Milliseconds(), Milli: milli}
	}
	for job, want := range map[uint64][]*nodev1.NeighbourSpan{
		1: {span(2, 10*time.Second, 25*time.Second, 300)},
		3: {span(2, 0, 5*time.Second, 900)},
	} {
		if d := cmp.Diff(want, l.end(job).Profile.Neighbours, protocmp.Transform()); d != "" {
			t.Errorf("job %d (-want +got):\n%s", job, d)
		}
	}
	want := []*nodev1.NeighbourSpan{span(1, 0, 25*time.Second, 500), span(3, 20*time.Second, 5*time.Second, 50)}
	if d := cmp.Diff(want, two.Profile.Neighbours, protocmp.Transform()); d != "" {
		t.Errorf("job 2 (-want +got):\n%s", d)
	}
}

func TestTheLongestNeighboursAreKept(t *testing.T) {
	l := newLab(t, "a")
	l.begin(1, "a")
	const others = 100
	for i := range uint64(others) {
		l.begin(100+i, "a")
		l.pass(time.Duration(1+i%50) * time.Second)
		l.r.End(id(100+i), l.now)
		l.r.Forget(id(100 + i))
	}
	p := l.end(1).Profile
	if len(p.Neighbours) != cluster.MaxProfileSpans || int(p.MoreNeighbours) != others-cluster.MaxProfileSpans {
		t.Fatalf("%d neighbours and %d more", len(p.Neighbours), p.MoreNeighbours)
	}
	for i, n := range p.Neighbours {
		if n.ForMs < 47_000 || i > 0 && n.FromMs <= p.Neighbours[i-1].FromMs {
			t.Errorf("neighbour %d: %v", i, n)
		}
	}
}

// TestRestart: what was seen before an agent's end counts, the time of its
// absence is said, and neighbours that ended meanwhile are known by their end.
func TestRestart(t *testing.T) {
	l := newLab(t, "a")
	l.used["a"].EnergyMJ = 1
	l.begin(1, "a")
	l.begin(2, "a")
	l.on("a", 1, 2000, 400)
	l.on("a", 2, 100, 400)
	l.pass(60 * time.Second)
	began := l.now.Add(-60 * time.Second)
	l.restart()
	l.now = l.now.Add(2 * time.Second) // away, and 2 ends in the middle of it
	l.r.Begin(Attempt{ID: id(1), Started: began, Cards: []string{"a"}})
	l.r.Begin(Attempt{ID: id(2), Started: began, Cards: []string{"a"}})
	two := l.r.End(id(2), l.now.Add(-time.Second))
	l.used["a"].Processes = l.used["a"].Processes[:1]
	l.on("a", 1, 1000, 800)
	l.used["a"].EnergyMJ = 200_000 // the counter went on
	l.pass(30 * time.Second)
	got := l.end(1)
	want := &Result{
		GPUMemPeakMiB: 2000, Milli: (400*60*4 + 800*30*4 - 800 + 179) / (90*4 - 1), // less the look over the gap
		Profile: &nodev1.Profile{
			GpuMemMeanMib: (2000*60*4 + 1000*30*4 - 1000 + 179) / (90*4 - 1), GpuP95Milli: got.Profile.GpuP95Milli, EnergyJ: 200,
			SampledMs: 89_750, GapMs: 2250,
			Neighbours: []*nodev1.NeighbourSpan{{Job: 2, ForMs: 61_000, Milli: 400}},
		},
	}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if two.Profile.SampledMs != 60_000 || two.Profile.GapMs != 1000 || len(two.Profile.Neighbours) != 1 {
		t.Errorf("who ended while the agent was away: %+v", two.Profile)
	}
	l.r.Forget(id(1))
	l.r.Forget(id(2))
	l.r.save()
	if _, err := os.Stat(l.path); !os.IsNotExist(err) {
		t.Errorf("with nothing to keep, the file is there: %v", err)
	}
}

func TestAgentWithoutItsFile(t *testing.T) {
	l := newLab(t, "a")
	l.on("a", 1, 500, 500)
	l.r.Begin(Attempt{ID: id(1), Started: l.now.Add(-time.Hour), Cards: []string{"a"}})
	l.pass(10 * time.Second)
	if p := l.end(1).Profile; p.GapMs != time.Hour.Milliseconds()+250 || p.SampledMs != 9750 {
		t.Errorf("sampled %d ms, gap %d ms", p.SampledMs, p.GapMs)
	}
	if l.r.End(id(9), l.now) != nil {
		t.Error("an attempt that never began has a profile")
	}
}

// TestProviderThatHangs: what happened meanwhile is unknown, and said to be.
func TestProviderThatHangs(t *testing.T) {
	l := newLab(t, "a")
	l.begin(1, "a")
	l.on("a", 1, 500, 500)
	l.pass(10 * time.Second)
	l.now = l.now.Add(time.Minute)
	l.on("a", 1, 900, 1000)
	l.pass(10 * time.Second)
	got := l.end(1)
	if got.Profile.GapMs != 60_250 || got.Profile.SampledMs != 19_750 || math.Abs(float64(got.Milli-747)) > 5 {
		t.Errorf("%+v", got)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"tracks":[{"id":{"Job":1,"No":1},"cards":[{"uuid":"a"}],"beside":[{"with":{"Job":2,"No":1}}]}]}`))
	f.Add([]byte(`{"tracks":[null]}`))
	f.Add([]byte(`{"tracks":[{"id":{"Job":1},"cards":[null],"beside":[null]}],"cards":null}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "profiles.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, now := New(path, slog.New(slog.DiscardHandler)), time.Now()
		r.Begin(Attempt{ID: id(1), Started: now, Cards: []string{"a"}})
		r.Observe(now.Add(time.Second), []gpu.Usage{{UUID: "a", PowerW: 5}})
		if r.End(id(1), now.Add(2*time.Second)) == nil {
			t.Error("no profile")
		}
		r.save()
	})
}
