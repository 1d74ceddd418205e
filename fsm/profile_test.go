package fsm

import (
	"encoding/hex"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/learned"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// typical is the profile of two hours beside two others.
func typical() *logv1.Profile {
	return &logv1.Profile{
		GpuMemMeanMib: 5120, GpuP95Milli: 930, GpuMemActivityMilli: 310, EnergyJ: 1_250_000, HostHighWaterMib: 12_400,
		ReadBytes: 48 << 30, WrittenBytes: 3 << 30, SampledMs: 7_203_250, GapMs: 2_250,
		Neighbours: []int64{104_233, 61_250, 3_600_000, 420, 104_377, 3_700_500, 3_500_000, 180}, MoreNeighbours: 1,
	}
}

func profiled(u *logv1.Usage) *logv1.Usage {
	u.Profile = typical()
	return u
}

// together has two jobs on one card for a minute, and returns them.
func together(t *testing.T, m *machine) (a, b cluster.JobID) {
	t.Helper()
	a, b = m.submit(spec(1)), m.submit(spec(1))
	m.start(a, share1("n1-g0", 8000, 300))
	m.start(b, share1("n1-g0", 8000, 300))
	m.report(a, cluster.JobRunning)
	m.now = m.now.Add(time.Minute)
	return a, b
}

func TestProfileIsKept(t *testing.T) {
	t.Parallel()
	m := lab(t)
	a, b := together(t, m)
	r := m.reportOf(a, cluster.JobCompleted)
	r.Exit, r.EndedUs = exit(0), int64(m.now)
	r.Usage = usage(7000, false)
	r.Usage.Profile = &logv1.Profile{
		GpuMemMeanMib: 6000, GpuP95Milli: 900, EnergyJ: 12_000, ReadBytes: 5, WrittenBytes: math.MaxInt64, SampledMs: 59_750, GapMs: -1,
		Neighbours: []int64{int64(b), 500, 3_600_000, 5000, 77, 0, 10, 10, 1, 2, 3}, MoreNeighbours: math.MaxUint32,
	}
	m.must(reportCmd(r))
	at := m.job(a).Last()
	ran := at.Ended.Sub(at.Started)
	want := &cluster.Profile{
		GPUMemMeanMiB: 6000, MilliP95: 900, EnergyJ: 12_000, ReadBytes: 5, WrittenBytes: maxIOBytes, Sampled: 59_750 * time.Millisecond,
		Neighbours:     []cluster.NeighbourSpan{{Job: b, From: 500 * time.Millisecond, For: (ran - 500*time.Millisecond).Truncate(time.Millisecond), Milli: 1000}},
		MoreNeighbours: maxMore,
	}
	if d := cmp.Diff(want, at.Usage.Profile); d != "" {
		t.Errorf("profile (-want +got), which ran %s:\n%s", ran, d)
	}
	f := restored(t, snapshotOf(t, m.f)) // which compares the hash
	if j, _ := f.Job(a); cmp.Diff(want, j.Last().Usage.Profile) != "" {
		t.Errorf("restored: %+v", j.Last().Usage.Profile)
	}
}

// TestProfileOfOlderEntries: coordinators of before version 8 do not see it,
// and so nobody may keep it from their entries.
func TestProfileOfOlderEntries(t *testing.T) {
	t.Parallel()
	for version, kept := range map[uint32]bool{7: false, 8: true} {
		m := lab(t)
		a, _ := together(t, m)
		r := m.reportOf(a, cluster.JobCompleted)
		r.Usage = profiled(usage(7000, false))
		data, err := EncodeEntry(version, testTerm, m.now, []*logv1.Command{reportCmd(r)})
		if err != nil {
			t.Fatal(err)
		}
		applyTo(t, m.f, m.index+1, testTerm, data)
		if got := m.job(a).Last(); (got.Usage.Profile != nil) != kept || got.Usage.GPUMemPeakMiB != 7000 {
			t.Errorf("version %d: %+v", version, got.Usage)
		}
	}
}

// TestEntriesOfVersion7KeepTheirMeaning: the state of the last version's
// entries is the one that it was.
func TestEntriesOfVersion7KeepTheirMeaning(t *testing.T) {
	t.Parallel()
	f := New(Options{})
	applyTo(t, f, 1, testTerm, unhex(t, "entry.v7.hex"))
	if got := hex.EncodeToString(f.Hash()); got != "d121b28d1a5cb8dcd388314c2f76634f9d53de612ccd90a843355296b02f0585" {
		t.Errorf("an entry of version 7 makes a state with hash %s", got)
	}
	if f = restored(t, unhex(t, "snapshot.v7.hex")); f.EntryVersion() != 7 {
		t.Errorf("a snapshot of version 7 is read as one of %d", f.EntryVersion())
	}
}

// TestProfileIsSmall holds what a profile takes in the log and in snapshots.
func TestProfileIsSmall(t *testing.T) {
	t.Parallel()
	p := typical()
	if n := proto.Size(p); n > 100 {
		t.Errorf("a profile with two neighbours takes %d bytes, at most 100 were promised", n)
	}
	for i := range 2 * cluster.MaxProfileSpans {
		p.Neighbours = append(p.Neighbours, int64(104_233+i), 61_250, 3_600_000, 420)
	}
	p.Neighbours = p.Neighbours[:4*cluster.MaxProfileSpans]
	if n := proto.Size(p); n > 200 {
		t.Errorf("the largest takes %d bytes, at most 200 were promised", n)
	}
}

// BenchmarkProfileKept keeps 100,000 profiles and says what memory they take.
func BenchmarkProfileKept(b *testing.B) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const n = 100_000
	for b.Loop() {
		before := heap()
		kept := make([]*cluster.Profile, n)
		a := &cluster.Attempt{Ended: cluster.Time(3 * time.Hour / time.Microsecond), Neighbours: []cluster.JobID{104_233, 104_377}}
		for i := range kept {
			kept[i] = learned.SaneProfile(conv.UsageFromLog(&logv1.Usage{Profile: typical()}).Profile, a)
		}
		b.ReportMetric(float64(heap()-before)/n, "B/profile")
		b.ReportMetric(float64(proto.Size(typical())), "B/encoded")
		runtime.KeepAlive(kept)
	}
}
