package explain

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// TestLimitRoom: a quota has room when enough of those have ended that count for
// it, when its period is over, or when use has decayed; and else never.
func TestLimitRoom(t *testing.T) {
	t.Parallel()
	now := cluster.TimeOf(time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)) // a Wednesday
	bio := accounting.Subject{Account: "bio"}
	running := func(id cluster.JobID, account string, limit time.Duration) *cluster.Job {
		return &cluster.Job{
			ID: id, State: cluster.JobRunning, Spec: &cluster.Spec{GPUs: 1, Account: account, TimeLimit: limit, Duration: limit / 2},
			Attempts: []cluster.Attempt{{No: 1, State: cluster.JobRunning, Started: now, Placed: now, GPUMilli: cluster.WholeGPU,
				Estimate: cluster.Estimate{GPUType: "A", Duration: limit / 2, Source: "declared"},
				Berth:    cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: "g", Share: cluster.Share{Exclusive: true, Milli: cluster.WholeGPU}}}}}},
		}
	}
	job := &cluster.Job{ID: 9, State: cluster.JobPending, Spec: &cluster.Spec{GPUs: 1, Account: "bio"}}
	for _, c := range []struct {
		name     string
		l        accounting.Limits
		half     time.Duration
		used     cluster.GPUTime
		p50, p90 time.Duration
		words    string
		services bool // what counts are replicas
		never    bool
	}{
		{name: "no limit"},
		{name: "there is room", l: accounting.Limits{Running: 3}},
		{name: "one must end", l: accounting.Limits{Running: 2}, p50: 30 * time.Minute, p90: time.Hour, words: "job 1 ends, of 2 that count for it"},
		{name: "both must end", l: accounting.Limits{GPUMilli: 1000}, p50: time.Hour, p90: 2 * time.Hour, words: "2 of the 2 jobs end that count for it, job 1 first"},
		{name: "it is too large alone", l: accounting.Limits{GPUMilli: 900}, never: true},
		{name: "services do not end", l: accounting.Limits{Running: 2}, services: true, never: true},
		{name: "the week is spent", l: accounting.Limits{GPUTime: 10, Period: accounting.Weekly}, used: 10, p50: 108 * time.Hour, p90: 108 * time.Hour,
			words: "the budget is filled again when the next week begins, at 2026-11-23 00:00 UTC"},
		{name: "use decays", l: accounting.Limits{GPUTime: 1_800_000_000}, half: 24 * time.Hour, used: 1_800_000_000, p50: 48 * time.Hour,
			p90: 67 * time.Hour, words: "enough of the use has decayed, which halves in 24h0m0s"},
		{name: "use never decays", l: accounting.Limits{GPUTime: 10}, used: 10, never: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			lim := accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{bio: {Subject: bio, Limits: c.l}},
				func(accounting.Subject, accounting.Period) cluster.GPUTime { return c.used })
			snap := &dispatch.Snapshot{Now: now, Limits: lim, Running: []*cluster.Job{running(3, "chem", time.Minute), running(2, "bio", 2*time.Hour), running(1, "bio", time.Hour)}}
			for _, j := range snap.Running {
				if c.services {
					j.Spec.Service = &service.Service{Name: "chat"}
				}
				lim.Count(accounting.HolderOf(j), 1, 1, cluster.WholeGPU)
			}
			r, ok := LimitRoom(snap, job, cluster.WholeGPU, c.half, rules.Default())
			if ok == c.never {
				t.Fatalf("%+v, %t", r, ok)
			}
			if got := r.P50.Sub(now); !c.never && (got < c.p50 || got > c.p50*21/20+time.Second) {
				t.Errorf("middle in %s, want %s", got, c.p50)
			}
			if got := r.P90.Sub(now); !c.never && (got < c.p90 || got > c.p90*21/20+time.Second) {
				t.Errorf("tail in %s, want %s", got, c.p90)
			}
			if r.Words != c.words {
				t.Errorf("%q, want %q", r.Words, c.words)
			}
		})
	}
}
