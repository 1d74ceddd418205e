package agent_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// ledgered is a runtime that looks into the agent's journal, as a crash would leave
// it, before anything is done.
type ledgered struct {
	*agenttest.Runtime
	t   *testing.T
	dir func() string
}

func (r ledgered) record(id cluster.AttemptID) (journal.Record, bool) {
	return recorded(r.t, r.dir(), id)
}

// recorded is what the journal of an agent that runs has of an attempt.
func recorded(t *testing.T, of string, id cluster.AttemptID) (journal.Record, bool) {
	data, err := os.ReadFile(journal.Path(of))
	dir := t.TempDir()
	if err == nil {
		err = os.WriteFile(journal.Path(dir), data, 0o600)
	}
	j, jerr := journal.Open(dir)
	if err != nil || jerr != nil {
		t.Errorf("the journal: %v, %v", err, jerr)
		return journal.Record{}, false
	}
	defer j.Close()
	rec, ok := j.Records()[id]
	return rec, ok
}

// Create implements runtime.Runtime.
func (r ledgered) Create(ctx context.Context, l *launch.Launch) error {
	if rec, ok := r.record(l.ID); !ok || rec.End != nil {
		r.t.Errorf("%s is prepared, and the journal has %+v", l.ID, rec)
	}
	return r.Runtime.Create(ctx, l)
}

// Delete implements runtime.Runtime.
func (r ledgered) Delete(ctx context.Context, id cluster.AttemptID) error {
	if rec, ok := r.record(id); !ok || rec.End == nil {
		r.t.Errorf("%s is deleted, and the journal has %+v", id, rec)
	}
	return r.Runtime.Delete(ctx, id)
}

// TestTheJournalComesFirst: what was not written down is not prepared, and what has
// no end there is not deleted, or a crash between the two would leave a process
// that nobody knows, or lose how it ended.
func TestTheJournalComesFirst(t *testing.T) {
	r := newRigWith(t, func(cfg *agent.Config) {
		at := cfg.Dir
		cfg.Host = ledgered{Runtime: cfg.Host.(*agenttest.Runtime), t: t, dir: func() string { return at }}
	})
	r.leader.Assign(assignment(1))
	r.reported(1, nodev1.AttemptState_ATTEMPT_STATE_RUNNING)
	r.rt.Exit(id(1), 3, true)
	r.reported(1, nodev1.AttemptState_ATTEMPT_STATE_FAILED)
	r.eventually("its deletion", func() bool { return r.rt.Phase(id(1)) == runtime.Absent })
}

// TestWhatIsOverAtOnceIsReportedOnce: a batch job that ends before anybody could look is
// reported with its end, which says when it began; one that goes on is said to run soon, and
// what a user waits for at once.
func TestWhatIsOverAtOnceIsReportedOnce(t *testing.T) {
	t.Parallel()
	script, err := plainconv.PackScript([]byte("#!/bin/sh\ntrue\n"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r, _ := virtual(t, func(c *agent.Config) { c.Scripts = t.TempDir() })
		began := time.Now()
		for job := range uint64(3) {
			as := assignment(job + 1)
			if job < 2 {
				as.Uid, as.Gid, as.Script = uint32(os.Getuid()), uint32(os.Getgid()), script
			}
			r.leader.Assign(as)
		}
		synctest.Wait()
		r.rt.Exit(id(1), 0, true)
		synctest.Wait()
		got := r.leader.Reports(id(1))
		if len(got) != 1 || got[0].State != completed || !got[0].Started.AsTime().Equal(began) {
			t.Errorf("the short job is reported as %v", got)
		}
		if last := r.leader.Last(id(3)); last.GetState() != running {
			t.Errorf("what a user waits for is reported as %v", last)
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if last := r.leader.Last(id(2)); last.GetState() != running {
			t.Errorf("the other batch job is reported as %v", last)
		}
	})
}

// TestAStepThatFailsIsKnown as long as it fails, and no longer.
func TestAStepThatFailsIsKnown(t *testing.T) {
	var under wait.Underway
	r := newRigWith(t, func(c *agent.Config) { c.Underway = &under })
	r.rt.Fail("create", errors.New("busy"), errors.New("busy"))
	r.leader.Assign(assignment(1))
	r.reported(1, nodev1.AttemptState_ATTEMPT_STATE_RUNNING)
	r.eventually("nothing that fails", func() bool { return len(under.Longer(0)) == 0 })
	r.rt.Fail("create", slices.Repeat([]error{errors.New("busy")}, 1000)...)
	r.leader.Assign(assignment(2))
	r.eventually("the step that fails", func() bool {
		return slices.Equal(slices.Collect(maps.Keys(under.Longer(0))), []string{"prepare a job"})
	})
}
