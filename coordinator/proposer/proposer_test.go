package proposer

import (
	"context"
	"errors"
	"fmt"
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
	p = New(d, d.fsm, time.Now)
	p.SetVersion(fsm.EntryVersion)
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
		p.SetVersion(1)
		needs := &logv1.Command{Kind: &logv1.Command_InstallWeights{InstallWeights: &logv1.InstallWeights{}}}
		if _, err := p.One(t.Context(), needs); !errors.Is(err, ErrOldMembers) {
			t.Errorf("newer than the others read: %v", err)
		}
		p.SetVersion(fsm.EntryVersion)
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
