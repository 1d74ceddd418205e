package faulttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/containerdrt/daemon"
	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/agent/processrt"
	"github.com/berth-scheduler/berth/agent/runtimetest"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const (
	user     = 65534
	patience = 10 * time.Minute // for what loaded machines do
)

// mark is in the environment of every job of a site, so that orphans are
// found wherever they are.
const mark = "BERTH_FAULTTEST_SITE"

// site is one node: an agent in a process of its own, its leader, and
// containerd where it runs containers.
type site struct {
	*testing.T
	part   part
	out    string
	leader *agenttest.Leader
	d      *daemon.Daemon
	agent  *exec.Cmd
	gone   chan struct{} // closed when the agent has ended
	log    string        // the file of the agents' log
	jobs   uint64
}

func newSite(t *testing.T, containers bool) *site {
	t.Helper()
	runtimetest.Require(t, runtimetest.Root())
	dir, err := os.MkdirTemp("/tmp", "ft") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, out: filepath.Join(dir, "out"), leader: agenttest.NewLeader(t)}
	s.part = part{Dir: filepath.Join(dir, "agent"), Leader: filepath.Join(dir, "leader"), Cgroup: "/berth-fault/" + filepath.Base(dir), Namespace: filepath.Base(dir)}
	s.log = filepath.Join(dir, "log")
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, d := range []string{s.out, s.part.Dir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for d, mode := range map[string]os.FileMode{dir: 0o755, s.out: 0o777} {
		if err := os.Chmod(d, mode); err != nil {
			t.Fatal(err)
		}
	}
	s.leader.Listen(t, s.part.Leader)
	if containers {
		runtimetest.Require(t, daemon.Installed())
		if s.d, err = daemon.Start(t.Context(), daemon.Config{Dir: filepath.Join(dir, "cd")}); err != nil {
			t.Fatal(err)
		}
		s.part.Containerd = s.d.Socket()
		t.Cleanup(func() {
			if err := s.d.Stop(); err != nil {
				t.Error(err)
			}
		})
	} else {
		t.Cleanup(func() {
			if err := processrt.StopKeeper(filepath.Join(s.part.Dir, "rt")); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(s.kill)
	return s
}

// start runs an agent that crashes at a step, or at none.
func (s *site) start(crashAt string) {
	s.Helper()
	p := s.part
	p.CrashAt = crashAt
	form, err := json.Marshal(p)
	if err != nil {
		s.Fatal(err)
	}
	s.agent = exec.Command(os.Args[0], "play-agent", string(form))
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.Fatal(err)
	}
	defer log.Close()
	s.agent.Stderr = log
	if err := s.agent.Start(); err != nil {
		s.Fatal(err)
	}
	agent, gone := s.agent, make(chan struct{})
	s.gone = gone
	go func() {
		_ = agent.Wait() // ProcessState says how
		close(gone)
	}()
}

// kill ends the agent as kill -9 does.
func (s *site) kill() {
	if s.agent == nil {
		return
	}
	_ = s.agent.Process.Kill() // it may have killed itself
	<-s.gone
	s.agent = nil
}

// crashed waits until the agent has killed itself.
func (s *site) crashed() error {
	defer s.kill()
	select {
	case <-s.gone:
		return nil
	case <-time.After(patience):
		return errNever
	}
}

// failed reports whether the agent has ended by itself, which none does.
func (s *site) failed() bool {
	if s.agent == nil {
		return false
	}
	select {
	case <-s.gone:
		return s.agent.ProcessState.Exited()
	default:
		return false
	}
}

// said returns the end of what the agents logged, of one job or of all.
func (s *site) said(id cluster.AttemptID) string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if id.Job == 0 || strings.Contains(line, "job="+id.Job.String()+" ") || strings.Contains(line, "task="+id.String()) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-20):], "")
}

// assign has a shell run a script, once.
func (s *site) assign(script string, memMiB int64) cluster.AttemptID {
	id, as := s.assignment(script)
	as.MemMib = memMiB
	s.leader.Assign(as)
	return id
}

// assignment is of the next job, which has a shell run a script.
func (s *site) assignment(script string) (cluster.AttemptID, *nodev1.Assignment) {
	s.jobs++
	id := cluster.AttemptID{Job: cluster.JobID(s.jobs), No: 1}
	as := &nodev1.Assignment{
		Job: s.jobs, Attempt: 1, Token: 100 + s.jobs, Uid: user, Gid: user, User: "nobody", Name: "fault", Dir: []byte("/"),
		Stdout: []byte(s.output(id)), Env: [][]byte{[]byte(mark + "=" + filepath.Base(filepath.Dir(s.out)))},
	}
	for _, a := range []string{"/bin/sh", "-c", "echo ran; " + script} {
		as.Command = append(as.Command, []byte(a))
	}
	return id, as
}

func (s *site) output(id cluster.AttemptID) string { return filepath.Join(s.out, id.String()+".out") }

// runs is how often a job began.
func (s *site) runs(id cluster.AttemptID) int {
	text, err := os.ReadFile(s.output(id))
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "ran\n")
}

// ended returns the terminal report of an attempt, nil while there is none.
func (s *site) ended(id cluster.AttemptID) *nodev1.Report {
	if r := s.leader.Last(id); r != nil && r.State >= nodev1.AttemptState_ATTEMPT_STATE_COMPLETED {
		return r
	}
	return nil
}

func (s *site) until(what string, ok func() bool) {
	s.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if s.failed() || time.Now().After(deadline) {
			s.kill()
			s.Fatalf("not within %s, or the agent ended: %s; the agents' log ends with\n%s", patience, what, s.said(cluster.AttemptID{}))
		}
	}
}

// leftovers names everything that the jobs left behind, once the agent has
// had time to clear up: processes, control groups, tasks, files of attempts.
func (s *site) leftovers() (left []string) {
	deadline := time.Now().Add(10 * time.Minute)
	for {
		left = slicesConcat(s.processes(), s.groups(), s.tasks(), s.files())
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func slicesConcat(lists ...[]string) (out []string) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// processes are those that have the site's mark in their environment.
func (s *site) processes() (left []string) {
	want := []byte(mark + "=" + filepath.Base(filepath.Dir(s.out)))
	envs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		s.Fatal(err)
	}
	for _, path := range envs {
		if env, err := os.ReadFile(path); err == nil && bytes.Contains(env, want) {
			left = append(left, "process "+filepath.Base(filepath.Dir(path)))
		}
	}
	return left
}

func (s *site) groups() (left []string) {
	h, err := cgroup.Detect()
	if err != nil {
		s.Fatal(err)
	}
	for _, mount := range append([]string{h.Unified, h.Memory, h.CPU, h.Account, h.Pids}, h.Others...) {
		dirs, err := filepath.Glob(filepath.Join("/", mount, s.part.Cgroup, "*-a*"))
		if err != nil {
			s.Fatal(err)
		}
		if mount != "" {
			left = append(left, dirs...)
		}
	}
	return left
}

// tasks are those that a runtime of the same state still knows.
func (s *site) tasks() (left []string) {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	rt, done, err := s.part.open(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return []string{"no runtime: " + err.Error()}
	}
	list, err := rt.List(ctx)
	if err != nil {
		left = append(left, "no list of tasks: "+err.Error())
	}
	for _, t := range list {
		left = append(left, fmt.Sprintf("task %s, %s", t.ID, t.Phase))
	}
	if err := done(); err != nil {
		s.Error(err)
	}
	return left
}

// files are those in the runtime's directory that are named after attempts.
func (s *site) files() (left []string) {
	for _, pattern := range []string{"rt/j*-a*", "rt/*/j*-a*", "rt/*/*/j*-a*"} {
		found, err := filepath.Glob(filepath.Join(s.part.Dir, pattern))
		if err != nil {
			s.Fatal(err)
		}
		left = append(left, found...)
	}
	gates, err := filepath.Glob("/run/berth-starts/" + s.part.Namespace + ".*")
	if err != nil {
		s.Fatal(err)
	}
	return append(left, gates...)
}

// records are those that are left in the agent's journal when it has had time
// to clear it: that an end is committed need not reach the disk before a kill,
// since the next agent reports it again and is told so.
func (s *site) records() (left []string) {
	s.Helper()
	s.kill()
	if left = s.recordsIn(s.part.Dir); len(left) == 0 {
		return nil
	}
	s.start("")
	for deadline := time.Now().Add(patience); len(left) > 0 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		left = s.copied() // there is nothing to ask but the file it writes
	}
	s.kill()
	return s.recordsIn(s.part.Dir)
}

// copied are the records of the journal that an agent holds open.
func (s *site) copied() []string {
	s.Helper()
	b, err := os.ReadFile(journal.Path(s.part.Dir))
	dir := s.TempDir()
	if err = errors.Join(err, os.WriteFile(journal.Path(dir), b, 0o600)); err != nil {
		s.Fatal(err)
	}
	return s.recordsIn(dir)
}

func (s *site) recordsIn(dir string) (left []string) {
	s.Helper()
	j, err := journal.Open(dir)
	if err != nil {
		return []string{"journal: " + err.Error()}
	}
	for id := range j.Records() {
		left = append(left, "journal record of "+id.String())
	}
	if err := j.Close(); err != nil {
		s.Error(err)
	}
	return left
}
