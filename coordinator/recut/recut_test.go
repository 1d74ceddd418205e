package recut

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
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

// TestLooksWhenAJobsTimeComes: while nothing changes, the GPUs that could be cut are looked at
// once, and again when a job's begin time has come.
func TestLooksWhenAJobsTimeComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().Add(time.Hour)
		r, looks := New(Needs{
			FSM: oneWaits(t, cluster.TimeOf(begin)), Clock: time.Now, Log: slog.New(slog.DiscardHandler),
			Cards: func() []mig.Card {
				return []mig.Card{{Node: "n1", UUID: "GPU-1", Type: "A100", Profiles: []mig.Profile{{Name: "1g.10gb", MemMiB: 10_000, Compute: 1, Size: 1, Starts: []int{0}}}}}
			},
		}), []time.Time(nil)
		r.Plan = func(*dispatch.Snapshot) dispatch.Plan { looks = append(looks, time.Now()); return dispatch.Plan{} }
		first := time.Now().Add(every)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		if err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if want := []time.Time{first, begin}; !slices.EqualFunc(looks, want, time.Time.Equal) {
			t.Errorf("looked at %v, want %v", looks, want)
		}
	})
}

// oneWaits is a machine with a node and a job that waits until its begin time.
func oneWaits(t *testing.T, begin cluster.Time) *fsm.FSM {
	t.Helper()
	f := fsm.New(fsm.Options{})
	for i, cmd := range []*logv1.Command{
		{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: &logv1.Node{Id: "n1", State: 1, BootId: "b", CpuMilli: 1000, MemMib: 1000}}}},
		{Kind: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
			FirstJob: 1, RequestId: "request-0000000001", BodyHash: make([]byte, 32), Owner: &logv1.Owner{Uid: 1000},
			Jobs: []*logv1.NewJob{{Spec: &logv1.Spec{Name: "j", Command: [][]byte{[]byte("true")}, Gpus: 1, BeginUs: int64(begin)}}},
		}}},
	} {
		data, err := fsm.EncodeEntry(fsm.EntryVersion, 1, cluster.TimeOf(time.Now()), []*logv1.Command{cmd})
		if err != nil {
			t.Fatal(err)
		}
		if r := f.Apply(&raft.Log{Index: uint64(i + 1), Term: 1, Data: data}).([]fsm.Result)[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return f
}
