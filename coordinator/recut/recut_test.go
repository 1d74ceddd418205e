package recut

import (
	"log/slog"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/mig"
)

// TestReason: a job waits for the cut of a GPU for as long as that takes, and is held back from
// a larger instance for twenty seconds, whether its cut has begun or not.
func TestReason(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	card := mig.Card{Node: "n1", UUID: "GPU-1", Instances: []mig.Instance{{ID: "whole", Profile: "7g.80gb"}}}
	other := mig.Card{Node: "n2", UUID: "GPU-2"}
	for name, c := range map[string]struct {
		cut, held bool
		after     time.Duration
		want      string
	}{
		"neither":          {want: ""},
		"its cut":          {cut: true, after: 50 * time.Second, want: "GPU GPU-2 of node n2 is cut anew for it since 2026-05-01 12:00:00 UTC"},
		"held back":        {held: true, want: "waits since 2026-05-01 12:00:00 UTC for GPU GPU-1 of node n1 to be cut anew; from 2026-05-01 12:00:20 UTC on it may have 7g.80gb there, which is larger than it needs"},
		"both":             {cut: true, held: true, after: 19 * time.Second, want: "GPU GPU-2 of node n2 is cut anew for it since 2026-05-01 12:00:00 UTC; from 2026-05-01 12:00:20 UTC on it may have 7g.80gb on GPU GPU-1 of node n1, which is larger than it needs"},
		"held long enough": {held: true, after: 20 * time.Second, want: ""},
		"its cut goes on":  {cut: true, held: true, after: 20 * time.Second, want: "GPU GPU-2 of node n2 is cut anew for it since 2026-05-01 12:00:00 UTC"},
	} {
		r := New(Needs{Log: slog.New(slog.DiscardHandler), Clock: func() time.Time { return begun.Add(c.after) }})
		if c.cut {
			r.pending[other.UUID] = &pending{cut: &mig.Cut{Card: &other, For: []cluster.JobID{6, 7}}, since: begun}
		}
		if c.held {
			r.held[7] = held{gpu: card, id: "whole", since: begun}
		}
		if got := r.Reason(7); got.Detail != c.want || (got.Code == cluster.ReasonCut) != (c.want != "") {
			t.Errorf("%s: %q", name, got)
		}
		if got := r.Reason(8); got.Code != "" {
			t.Errorf("%s: another job waits: %q", name, got)
		}
	}
}
