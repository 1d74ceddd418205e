package agent_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// inGroups is a runtime whose attempts have control groups.
type inGroups struct {
	*agenttest.Runtime
	h cgroup.Hierarchy
}

func (r inGroups) Group(id cluster.AttemptID) *cgroup.Group { return r.h.Open("/" + id.String()) }

// TestAProcessThatHangsInTheKernel is named, to the leader and on the node, until it has
// ended: while its job runs, and when only it is left.
func TestAProcessThatHangsInTheKernel(t *testing.T) {
	var under wait.Underway
	dir := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/4710/task/4710/stat", "4710 (bash) S 1")
	write("proc/4711/task/4711/stat", "4711 (cp) D 1")
	write("proc/4711/task/4711/wchan", "nfs_wait")
	write("j1-a1/cgroup.procs", "4710\n4711\n")
	write("j2-a1/cgroup.procs", "4711\n")
	r := newRigWith(t, func(c *agent.Config) {
		c.Host = inGroups{c.Host.(*agenttest.Runtime), cgroup.Hierarchy{Unified: dir}}
		c.Underway, c.Health = &under, agent.HealthConfig{Unkillable: 50 * time.Millisecond, Proc: filepath.Join(dir, "proc")}
	})
	hang := func() []string { return slices.Collect(maps.Keys(under.Longer(time.Hour))) }

	r.rt.Ignore(syscall.SIGTERM)
	r.rt.Fail(syscall.SIGKILL.String(), slices.Repeat([]error{errors.New("processes do not end")}, 1000)...)
	as := assignment(1)
	r.leader.Assign(as)
	r.reported(1, running)
	as = assignment(1)
	as.Stop = true
	r.leader.Assign(as)
	if why := r.reported(1, completing).Detail; !strings.HasPrefix(why, "a process of j1-a1, 4711 (cp, in nfs_wait), has not ended 50ms after SIGKILL: ") {
		t.Errorf("reported %q", why)
	}
	if got := hang(); !slices.Equal(got, []string{"process 4711 (cp, in nfs_wait) of job 1"}) {
		t.Errorf("what hangs: %q", got)
	}
	r.rt.Exit(id(1), 137, true)
	r.reported(1, cancelled)
	r.eventually("nothing hangs", func() bool { return len(hang()) == 0 })

	r.rt.Fail("delete", slices.Repeat([]error{errors.New("busy")}, 1000)...)
	r.leader.Assign(assignment(2))
	r.reported(2, running)
	r.rt.Exit(id(2), 0, true)
	r.reported(2, completed)
	r.eventually("what is left hangs", func() bool { return slices.Equal(hang(), []string{"process 4711 (cp, in nfs_wait) of job 2"}) })
}
