package agent_test

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/agent/journal"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestATimeLimitIsChanged: a shorter one brings the warning forward, is journalled
// before anything is done by it, and ends the job; a restart neither forgets it nor
// warns again.
func TestATimeLimitIsChanged(t *testing.T) {
	r := newRig(t)
	r.rt.Ignore(syscall.SIGUSR1)
	limited := func(d time.Duration) *nodev1.Assignment {
		as := warned(1, &nodev1.Warning{Signal: "USR1", Before: durationpb.New(time.Hour)})
		as.TimeLimit = durationpb.New(d)
		return as
	}
	r.leader.Assign(limited(10 * time.Hour))
	r.reported(1, running)
	r.leader.Assign(limited(time.Hour))
	r.eventually("warned", func() bool { return len(r.signals(1)) > 0 })
	r.stop()
	j, err := journal.Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	if as := j.Records()[id(1)].Assignment; as.GetTimeLimit().AsDuration() != time.Hour || !as.GetProgress().GetWarned() {
		t.Errorf("the journal has a limit of %s, warned: %t", as.GetTimeLimit().AsDuration(), as.GetProgress().GetWarned())
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.leader.Assign(assignment(2))
	r.reported(2, running)
	r.leader.Assign(limited(time.Millisecond))
	if got := r.reported(1, timeout); got.Reason != "TimeLimit" || got.Detail != "ran into its time limit of 1ms" {
		t.Errorf("%v", got)
	}
	if s := r.signals(1); !slices.Equal(s, []string{"all-" + usr1, term}) {
		t.Errorf("signals %q", s)
	}
}

// journalled is what the journal of a running agent has of a job.
func (r *rig) journalled(job uint64) *nodev1.Assignment {
	r.t.Helper()
	dir := r.t.TempDir()
	data, err := os.ReadFile(journal.Path(r.dir))
	if err == nil {
		err = os.WriteFile(journal.Path(dir), data, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	j, err := journal.Open(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	defer j.Close()
	return j.Records()[id(job)].Assignment
}

// TestMoreTimeIsWarnedOfAgain: when the end is far off again, the warning before it
// comes once more.
func TestMoreTimeIsWarnedOfAgain(t *testing.T) {
	r := newRig(t)
	r.rt.Ignore(syscall.SIGUSR1)
	as := warned(1, &nodev1.Warning{Signal: "USR1"})
	r.leader.Assign(as)
	r.reported(1, running)
	r.eventually("warned", func() bool { return len(r.signals(1)) == 1 })
	more := warned(1, &nodev1.Warning{Signal: "USR1", Before: durationpb.New(time.Hour)})
	more.TimeLimit = durationpb.New(10 * time.Hour)
	r.leader.Assign(more)
	r.eventually("the journal has it", func() bool { return r.journalled(1).GetTimeLimit().AsDuration() == 10*time.Hour })
	r.leader.Assign(as)
	r.eventually("warned again", func() bool { return len(r.signals(1)) == 2 })
	r.rt.Exit(id(1), 0, true)
	r.reported(1, completed)
}
