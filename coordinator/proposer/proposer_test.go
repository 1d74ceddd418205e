package proposer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	hraft "github.com/hashicorp/raft"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// disk is a Raft of one, whose every write takes a second.
type disk struct {
	fsm   *fsm.FSM
	index uint64
	err   error // of every write
	full  error // why nothing may be proposed
}

// TestNothingIsProposedThatMayNotBe: whoever waits hears why, the disk hears
// nothing, and the numbers of jobs go on where they were.
func TestNothingIsProposedThatMayNotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{full: &cluster.Error{Code: cluster.CodeUnavailable, Msg: "no room"}}
		p, stop := start(t, d)
		defer stop()
		if _, err := p.One(t.Context(), submit("a")); !errors.Is(err, d.full) || d.index != 0 {
			t.Errorf("got %v after %d writes", err, d.index)
		}
		synctest.Wait()
		d.full = nil
		if r, err := p.One(t.Context(), submit("a")); err != nil || len(r.Jobs) != 1 || r.Jobs[0] != 1 || d.index != 1 {
			t.Errorf("with room again: %+v, %v after %d writes", r, err, d.index)
		}
	})
}

func (d *disk) Propose(_ context.Context, data []byte) (uint64, any, error) {
	time.Sleep(time.Second)
	if d.err != nil {
		return 0, nil, d.err
	}
	d.index++
	return d.index, d.fsm.Apply(&hraft.Log{Index: d.index, Term: 1, Data: data}), nil
}

func submit(request string) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
		RequestId: request, BodyHash: make([]byte, 32), Owner: &logv1.Owner{Uid: 1000},
		Jobs: []*logv1.NewJob{{Spec: &logv1.Spec{Name: "j", CpuMilli: 1}}},
	}}}
}

func start(t *testing.T, d *disk) (p *Proposer, stop func()) {
	t.Helper()
	d.fsm = fsm.New(fsm.Options{})
	p = New(d, d.fsm, time.Now, func() error { return d.full })
	p.SetVersion(fsm.EntryVersion, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx, 1)
	}()
	synctest.Wait()
	return p, func() { cancel(); <-done }
}

// TestWhatGathersIsOneEntry: and everybody has the ids of its own jobs.
func TestWhatGathersIsOneEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		p, stop := start(t, d)
		defer stop()
		ids := make(chan cluster.JobID, 6)
		ask := func(n int) {
			go func() {
				r, err := p.One(t.Context(), submit(fmt.Sprint("r", n)))
				if err != nil || len(r.Jobs) != 1 {
					t.Errorf("request %d: %+v, %v", n, r, err)
					ids <- 0
					return
				}
				ids <- r.Jobs[0]
			}()
			synctest.Wait()
		}
		for n := range 6 {
			ask(n)
		}
		seen := map[cluster.JobID]struct{}{}
		for range 6 {
			seen[<-ids] = struct{}{}
		}
		if d.index != 2 || len(seen) != 6 {
			t.Errorf("%d entries for %d ids, want the first request in one and the others in another", d.index, len(seen))
		}
	})
}

// TestWhatCannotBeWrittenFailsAlone: the log's texts are UTF-8, and a command that
// holds another fails by itself, not with all that were to be in its entry.
func TestWhatCannotBeWrittenFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		p, stop := start(t, d)
		defer stop()
		bad := submit("bad")
		bad.GetSubmitJob().Jobs[0].Spec.Name = "\xff"
		outcome := make([]error, 4)
		var wg sync.WaitGroup
		for i, c := range []*logv1.Command{submit("first"), submit("before"), bad, submit("after")} {
			wg.Go(func() { _, outcome[i] = p.One(t.Context(), c) })
			synctest.Wait()
		}
		wg.Wait()
		e, ok := errors.AsType[*cluster.Error](outcome[2])
		if !ok || e.Code != cluster.CodeInternal || !strings.Contains(e.Msg, "nothing was done") {
			t.Errorf("what cannot be written: got %v", outcome[2])
		}
		if err := errors.Join(outcome[0], outcome[1], outcome[3]); err != nil || d.fsm.NextJobID() != 4 {
			t.Errorf("those beside it: got %v, and %d is the next job", err, d.fsm.NextJobID())
		}
	})
}

// TestOutcomes: who is told that nothing was done, and who that it may have been.
func TestOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		p, stop := start(t, d)
		code := func(err error) cluster.Code {
			e, _ := errors.AsType[*cluster.Error](err)
			if e == nil {
				t.Fatalf("%v is no error for users", err)
			}
			return e.Code
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := p.One(brief, submit("a")); code(err) != cluster.CodeUnknown {
			t.Errorf("gave up waiting: %v", err)
		}
		time.Sleep(2 * time.Second) // until the entry is written all the same
		synctest.Wait()
		p.SetVersion(1, nil)
		needs := &logv1.Command{Kind: &logv1.Command_InstallWeights{InstallWeights: &logv1.InstallWeights{}}}
		if _, err := p.One(t.Context(), needs); !errors.Is(err, ErrOldMembers) || code(err) != cluster.CodeUnavailable {
			t.Errorf("newer than the others read: %v", err)
		}
		p.SetVersion(8, cluster.Errorf(cluster.CodeConflict, "coordinator c2 (berth 0.8.1) reads those up to 8"))
		array := submit("tasks")
		array.GetSubmitJob().Jobs = []*logv1.NewJob{{Spec: &logv1.Spec{Array: &logv1.Array{Runs: []uint32{0, 3, 1}}}}}
		want := "submit_job.jobs.spec.array needs coordinators that read log entries of version 9, and coordinator c2 (berth 0.8.1) reads those up to 8; nothing was done; start or upgrade it, then try again"
		if _, err := p.One(t.Context(), array); !errors.Is(err, ErrOldMembers) || code(err) != cluster.CodeConflict || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("an array beside an older coordinator: %v", err)
		}
		p.SetVersion(fsm.EntryVersion, nil)
		d.err = hraft.ErrLeadershipLost
		if _, err := p.One(t.Context(), submit("b")); code(err) != cluster.CodeUnknown {
			t.Errorf("leadership lost on the way: %v", err)
		}
		d.err = hraft.ErrNotLeader
		if _, err := p.One(t.Context(), submit("c")); code(err) != cluster.CodeUnavailable {
			t.Errorf("not the leader: %v", err)
		}
		stop()
		if _, err := p.One(t.Context(), submit("d")); !errors.Is(err, ErrNotLeader) {
			t.Errorf("stopped: %v", err)
		}
	})
}

// TestEntriesAreAppliedInAMoment: what is costly to apply is not in one entry with
// more of its kind, whether one call asks for it or many, unless it must be.
func TestEntriesAreAppliedInAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		p, stop := start(t, d)
		defer stop()
		plan := func() *logv1.Command {
			return &logv1.Command{Kind: &logv1.Command_ApplyPlan{ApplyPlan: &logv1.ApplyPlan{Moves: make([]*logv1.QueueMove, fsm.EntryCost/2)}}}
		}
		cancel := &logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: 1}}}
		rs, err := p.Each(t.Context(), plan(), plan(), cancel, cancel, plan())
		if err != nil || len(rs) != 5 || d.index != 3 {
			t.Fatalf("%d results in %d entries (%v), want 5 in 3", len(rs), d.index, err)
		}
		for i, want := range []uint64{1, 2, 2, 2, 3} {
			if rs[i].Index != want || (rs[i].Plan == nil) != (i == 2 || i == 3) {
				t.Errorf("command %d: %+v, want it in entry %d", i, rs[i], want)
			}
		}
		if rs, err = p.Do(t.Context(), plan(), plan(), plan()); err != nil || len(rs) != 3 || d.index != 4 {
			t.Errorf("%d results in %d entries (%v): what must be in one entry is", len(rs), d.index, err)
		}
		done := make(chan error, 4)
		for range 4 {
			go func() {
				_, err := p.One(t.Context(), plan())
				done <- err
			}()
			synctest.Wait()
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if d.index != 8 {
			t.Errorf("%d entries for 4 calls, want as many", d.index-4)
		}
		if rs, err = p.Each(t.Context()); err != nil || len(rs) != 0 {
			t.Errorf("nothing: %v, %v", rs, err)
		}
	})
}
