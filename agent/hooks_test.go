package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/hooks"
	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/agent/launch"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// hooked is a rig whose node has real programs for hooks. They write what they
// do to a file.
type hooked struct {
	*rig
	dir string
}

// newHooked runs the two scripts, in whose directory D files say what to do.
func newHooked(t *testing.T, prolog, epilog string) *hooked {
	t.Helper()
	h := &hooked{dir: t.TempDir()}
	cfg := hooks.Config{Timeout: 30 * time.Second, CgroupParent: "/berth-agent-test-" + filepath.Base(filepath.Dir(h.dir))}
	for name, text := range map[string]string{"prolog": prolog, "epilog": epilog} {
		if text == "" {
			continue
		}
		path := filepath.Join(h.dir, name)
		script := "#!/bin/sh\nD=${0%/*}\necho " + name + ` $BERTH_ATTEMPT $BERTH_JOB_STATE >> "$D/log"` + "\n" + text + "\n"
		if err := errors.Join(os.WriteFile(path, []byte(script), 0o755), os.Chmod(path, 0o755)); err != nil {
			t.Fatal(err)
		}
		if name == "prolog" {
			cfg.Prolog = path
		} else {
			cfg.Epilog = path
		}
	}
	runner, err := hooks.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if groups, err := cgroup.Detect(); err == nil && os.Getuid() == 0 {
			if err := groups.Open(cfg.CgroupParent + "/hooks").RemoveUp(); err != nil {
				t.Error(err)
			}
		}
	})
	h.rig = newRigWith(t, func(c *agent.Config) { c.Hooks = runner })
	return h
}

// log returns the lines that hooks have written to its end.
func (h *hooked) log() []string {
	data, err := os.ReadFile(filepath.Join(h.dir, "log"))
	if err != nil {
		return nil
	}
	lines := strings.Split(string(data), "\n")
	return lines[:len(lines)-1]
}

func (h *hooked) touch(name string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), nil, 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// wantLog compares what ran; repeated lines count.
func (h *hooked) wantLog(want ...string) {
	h.t.Helper()
	for i := range want {
		want[i] = strings.TrimSpace(want[i])
	}
	got := h.log()
	for i := range got {
		got[i] = strings.TrimSpace(got[i])
	}
	if !slices.Equal(got, want) {
		h.t.Errorf("hooks ran as %q, want %q", got, want)
	}
}

const waitFor = `while [ ! -e "$D/go" ]; do sleep 0.02; done`

// TestHooksSurroundAnAttempt: nothing is made before the prolog is through, and
// nobody hears of the end before the epilog is.
func TestHooksSurroundAnAttempt(t *testing.T) {
	h := newHooked(t, waitFor, `while [ ! -e "$D/done" ]; do sleep 0.02; done`)
	h.leader.Assign(assignment(1))
	h.eventually("the prolog runs", func() bool { return len(h.log()) == 1 })
	if c := h.rt.Calls(); len(c) > 0 {
		t.Errorf("before the prolog is through: %q", c)
	}
	h.touch("go")
	h.reported(1, running)
	h.rt.Exit(id(1), 3, true)
	h.eventually("the epilog runs", func() bool { return len(h.log()) == 2 })
	h.reported(1, nodev1.AttemptState_ATTEMPT_STATE_COMPLETING)
	h.touch("done")
	if got := h.reported(1, failed); got.Exit.GetCode() != 3 || got.Drain != "" {
		t.Errorf("reported %v", got)
	}
	h.wantLog("prolog j1-a1", "epilog j1-a1 FAILED")
}

// TestAPrologThatFails: the job waits again, the node is drained in plain
// words, the job itself never ran, and the epilog clears up.
func TestAPrologThatFails(t *testing.T) {
	h := newHooked(t, "echo 'no space on /scratch' >&2; exit 7", "true")
	h.leader.Assign(assignment(1))
	got := h.reported(1, lost)
	const why = "ended with exit code 7: no space on /scratch"
	if got.Reason != "NodeFault" || !strings.Contains(got.Detail, why) || !strings.HasPrefix(got.Drain, "prolog failed before job 1: ") || !strings.Contains(got.Drain, why) {
		t.Errorf("reported %v", got)
	}
	if c := h.rt.Calls(); slices.Contains(c, "create j1-a1") {
		t.Errorf("the job was made: %q", c)
	}
	h.wantLog("prolog j1-a1", "epilog j1-a1 LOST")
}

// TestAnEpilogThatFails drains the node, and leaves the job's end what it was.
func TestAnEpilogThatFails(t *testing.T) {
	h := newHooked(t, "", "echo 'GPU still in use' >&2; exit 1")
	h.leader.Assign(assignment(1))
	h.reported(1, running)
	h.rt.Exit(id(1), 0, true)
	got := h.reported(1, completed)
	if !strings.HasPrefix(got.Drain, "epilog failed after job 1: ") || !strings.Contains(got.Drain, "GPU still in use") {
		t.Errorf("reported %v", got)
	}
	h.wantLog("epilog j1-a1 COMPLETED")
}

// TestTheEpilogFollowsALaunchThatFailed.
func TestTheEpilogFollowsALaunchThatFailed(t *testing.T) {
	h := newHooked(t, "true", "true")
	h.rt.Fail("create", &launch.Error{Code: 127, Reason: "COMMAND", Err: errors.New("python: not found")})
	h.leader.Assign(assignment(1))
	if got := h.reported(1, failed); got.Exit.GetCode() != 127 || got.Drain != "" {
		t.Errorf("reported %v", got)
	}
	h.wantLog("prolog j1-a1", "epilog j1-a1 FAILED")
}

// TestAReleasedAttemptHasAnEpilog: the leader wants nothing more of it, and
// still hears of the drain.
func TestAReleasedAttemptHasAnEpilog(t *testing.T) {
	h := newHooked(t, "true", "exit 1")
	h.leader.Assign(assignment(1))
	h.reported(1, running)
	h.leader.Drop(id(1))
	h.eventually("the drain is asked for", func() bool {
		last := h.leader.Last(id(1))
		return last != nil && strings.HasPrefix(last.Drain, "epilog failed after job 1")
	})
	h.wantLog("prolog j1-a1", "epilog j1-a1 CANCELLED")
}

// TestARestartInTheMiddleOfAHook: it runs again from its begin, the job runs
// once, and what it ended with stays.
func TestARestartInTheMiddleOfAHook(t *testing.T) {
	h := newHooked(t, waitFor, `while [ ! -e "$D/done" ]; do sleep 0.02; done`)
	h.leader.Assign(assignment(1))
	h.eventually("the prolog runs", func() bool { return len(h.log()) == 1 })
	h.stop()
	h.start()
	h.eventually("the prolog runs again", func() bool { return len(h.log()) == 2 })
	h.touch("go")
	h.reported(1, running)
	h.stop()
	h.start() // between the hooks: neither runs again
	h.rt.Exit(id(1), 5, true)
	h.eventually("the epilog runs", func() bool { return len(h.log()) == 3 })
	h.stop()
	h.start()
	h.eventually("the epilog runs again", func() bool { return len(h.log()) == 4 })
	h.touch("done")
	if got := h.reported(1, failed); got.Exit.GetCode() != 5 || got.Reason != "NonZeroExitCode" {
		t.Errorf("reported %v", got)
	}
	h.wantLog("prolog j1-a1", "prolog j1-a1", "epilog j1-a1 FAILED", "epilog j1-a1 FAILED")
	creates := slices.DeleteFunc(h.rt.Calls(), func(c string) bool { return c != "create j1-a1" && c != "start j1-a1" })
	if !slices.Equal(creates, []string{"create j1-a1", "start j1-a1"}) {
		t.Errorf("calls %q", creates)
	}
}

// TestAnEndedAttemptKeepsItsEnd: what an agent writes down of it later does
// not make it one that goes on.
func TestAnEndedAttemptKeepsItsEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	end := &nodev1.Report{Job: 1, Attempt: 1, State: failed, Exit: &nodev1.Exit{Code: 9}}
	again := assignment(1)
	again.Progress = &nodev1.Progress{Epilog: nodev1.HookState_HOOK_STATE_ENDED}
	if err := errors.Join(j.Begin(assignment(1)), j.End(end), j.Begin(again)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also after the file was written anew
		rec := j.Records()[id(1)]
		if rec.End.GetExit().GetCode() != 9 || rec.Assignment.Progress.GetEpilog() != nodev1.HookState_HOOK_STATE_ENDED {
			t.Fatalf("record %v", rec)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if j, err = journal.Open(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
