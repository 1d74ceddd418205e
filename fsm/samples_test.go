package fsm

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// TestAbsurdFiguresTeachNothing: the job ends as it did, and is not learned
// from.
func TestAbsurdFiguresTeachNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		edit  func(r *logv1.ReportAttempt)
		learn bool
	}{
		{"as measured", func(*logv1.ReportAttempt) {}, true},
		{"a card and a twentieth", func(r *logv1.ReportAttempt) { r.Usage.GpuMemPeakMib = 43_008 }, true},
		{"more than that", func(r *logv1.ReportAttempt) { r.Usage.GpuMemPeakMib = 43_009 }, false},
		{"negative memory", func(r *logv1.ReportAttempt) { r.Usage.GpuMemPeakMib = -1 }, false},
		{"negative host memory", func(r *logv1.ReportAttempt) { r.Usage.HostMemPeakMib = -1 }, false},
		{"more than a GPU", func(r *logv1.ReportAttempt) { r.Usage.Milli = 1001 }, false},
		{"negative cores", func(r *logv1.ReportAttempt) { r.Usage.CpuMilli = -1 }, false},
		{"a power station", func(r *logv1.ReportAttempt) { r.Usage.PowerW = 10_001 }, false},
		{"negative steps", func(r *logv1.ReportAttempt) { r.Usage.Steps = -1 }, false},
		{"longer than a year", func(r *logv1.ReportAttempt) { r.Usage.DurationUs = (367 * 24 * time.Hour).Microseconds() }, false},
		{"ended before it started", func(r *logv1.ReportAttempt) { r.StartedUs, r.EndedUs = 200, 100 }, false},
		{"out of memory beyond the card", func(r *logv1.ReportAttempt) {
			r.State, r.Usage.GpuOom, r.Usage.GpuMemPeakMib = uint32(cluster.JobOutOfMemory), true, 1<<40
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := lab(t)
			id := running(m, spec(1), 8000)
			r := m.reportOf(id, cluster.JobCompleted)
			r.Usage = usage(7000, false)
			tc.edit(r)
			got := m.must(reportCmd(r))
			if n := len(m.f.Samples()); !got.Released || got.Absurd == tc.learn || (n == 1) != tc.learn {
				t.Errorf("%d samples, absurd %t", n, got.Absurd)
			}
			if j := m.job(id); !j.Attempts[0].State.Terminal() {
				t.Errorf("the attempt is %s", j.Attempts[0].State)
			}
		})
	}
}

// TestRunsKeepTheNumbersOfTheirCommand: what a run taught says of which numbers, in
// snapshots, too.
func TestRunsKeepTheNumbersOfTheirCommand(t *testing.T) {
	t.Parallel()
	m := lab(t)
	s := spec(1)
	s.Program, s.Numbers = "p", "16 0.1"
	r := m.reportOf(running(m, s, 8000), cluster.JobCompleted)
	r.Usage = usage(7000, false)
	m.must(reportCmd(r))
	for _, f := range []*FSM{m.f, restored(t, snapshotOf(t, m.f))} {
		if xs := f.Samples(); len(xs) != 1 || xs[0].Program != "p" || xs[0].Numbers != "16 0.1" {
			t.Errorf("%+v", xs)
		}
	}
}
