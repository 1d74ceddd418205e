package agent_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/runtime"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// gangOf is the part of node 1 of two, with so many processes each.
func gangOf(job uint64, tasks uint32, begin bool) *nodev1.Assignment {
	as := assignment(job)
	as.Ranks = &nodev1.Ranks{Nodes: []string{"n1", "n2"}, NodeRank: 1, Tasks: tasks, MasterAddr: "10.0.0.1", MasterPort: 20_017, Go: begin}
	return as
}

func (r *rig) ready(job uint64) {
	r.eventually("its part to be ready", func() bool {
		last := r.leader.Last(id(job))
		return last != nil && last.State == nodev1.AttemptState_ATTEMPT_STATE_STARTING && last.Ready
	})
}

// TestNothingStartsBeforeTheWord: a part is prepared, says so, and starts when
// it may; also when its agent is restarted in between.
func TestNothingStartsBeforeTheWord(t *testing.T) {
	r := newRig(t)
	r.leader.Assign(gangOf(1, 1, false))
	r.ready(1)
	if p := r.rt.Phase(id(1)); p != runtime.Created {
		t.Fatalf("it is %s", p)
	}
	r.stop()
	r.start()
	r.ready(1)
	if slices.ContainsFunc(r.rt.Calls(), func(call string) bool { return strings.HasPrefix(strings.ToLower(call), "start") }) {
		t.Fatalf("calls %q", r.rt.Calls())
	}
	r.leader.Assign(gangOf(1, 1, true))
	r.reported(1, running)
	r.rt.Exit(id(1), 0, true)
	r.reported(1, nodev1.AttemptState_ATTEMPT_STATE_COMPLETED)
}

// TestPreparedPartIsUndone: told to stop, or to make room, at the barrier, it
// ends without ever having started, and nothing is left of it.
func TestPreparedPartIsUndone(t *testing.T) {
	for name, change := range map[string]func(*nodev1.Assignment){
		"stop":      func(as *nodev1.Assignment) { as.Stop = true },
		"make room": func(as *nodev1.Assignment) { as.Preempt = roomFor(1, time.Hour).Preempt },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.leader.Assign(gangOf(1, 1, false))
			r.ready(1)
			as := gangOf(1, 1, false)
			change(as)
			r.leader.Assign(as)
			if got := r.reported(1, nodev1.AttemptState_ATTEMPT_STATE_CANCELLED); got.Exit != nil || got.Started != nil {
				t.Errorf("reported %v", got)
			}
			r.eventually("nothing to be left", func() bool { return r.rt.Phase(id(1)) == runtime.Absent })
		})
	}
}

// TestRanksAreTold: what processes of several nodes read, and that more than one
// on a node are run by the runtime's own program.
func TestRanksAreTold(t *testing.T) {
	r := newRig(t)
	one := gangOf(1, 1, true)
	one.Stdout = []byte("/tmp/%n-%t")
	r.leader.Assign(one)
	r.reported(1, running)
	l := r.rt.Launch(id(1))
	for _, want := range []string{
		"MASTER_ADDR=10.0.0.1", "MASTER_PORT=20017", "WORLD_SIZE=2", "RANK=1", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "NODE_RANK=1", "GROUP_RANK=1",
		"BERTH_NODES=2", "BERTH_NODE_RANK=1", "BERTH_NODELIST=n[1-2]", "BERTH_TASKS=1",
	} {
		if !slices.Contains(l.Env, want) {
			t.Errorf("no %s in %q", want, l.Env)
		}
	}
	if l.Ranks != nil || l.Stdout != "/tmp/1-1" {
		t.Errorf("ranks %+v, output %q", l.Ranks, l.Stdout)
	}
	four := gangOf(2, 4, true)
	four.Stdout = []byte("/tmp/%n-%t")
	r.leader.Assign(four)
	r.reported(2, running)
	l = r.rt.Launch(id(2))
	if l.Ranks == nil || l.Ranks.Tasks != 4 || l.Ranks.First != 4 || string(l.Ranks.Stdout) != "/tmp/1-\x00rank\x00" {
		t.Fatalf("ranks %+v", l.Ranks)
	}
	if slices.ContainsFunc(l.Env, func(e string) bool { return strings.HasPrefix(e, "RANK=") }) || !slices.Contains(l.Env, "WORLD_SIZE=8") {
		t.Errorf("environment %q", l.Env)
	}
}

// TestAPartComesBack: when an attempt comes to a node again that it left, with another
// token, its new part starts once the one before is cleared up; what is said late of the
// one before does the new one nothing.
func TestAPartComesBack(t *testing.T) {
	r := newRig(t)
	first := gangOf(1, 1, true)
	first.Ranks.Least, first.Ranks.Most = 1, 3
	r.leader.Assign(first)
	r.reported(1, running)
	l := r.rt.Launch(id(1))
	for _, want := range []string{
		"MASTER_ADDR=10.0.0.1", "BERTH_NODES=2", "BERTH_NODES_MIN=1", "BERTH_NODES_MAX=3", "BERTH_RDZV_ENDPOINT=10.0.0.1:20017", "BERTH_RDZV_HOST=0",
		"PET_NNODES=1:3", "PET_RDZV_BACKEND=c10d", "PET_RDZV_ENDPOINT=10.0.0.1:20017", "PET_RDZV_ID=berth-1-1", "PET_RDZV_CONF=is_host=0,last_call_timeout=5",
	} {
		if !slices.Contains(l.Env, want) {
			t.Errorf("it is not told %s", want)
		}
	}
	if slices.ContainsFunc(l.Env, func(line string) bool {
		return strings.HasPrefix(line, "WORLD_SIZE=") || strings.HasPrefix(line, "RANK=")
	}) {
		t.Error("it is told what will not stay true")
	}
	again := gangOf(1, 1, true)
	again.Token++
	r.leader.Assign(again) // its first part lives: it is to end, and then to start anew
	r.eventually("its new part to run", func() bool {
		last := r.leader.Last(id(1))
		return last != nil && last.Token == again.Token && last.State == running
	})
	starts := 0
	for _, call := range r.rt.Calls() {
		if strings.HasPrefix(strings.ToLower(call), "start") {
			starts++
		}
	}
	if starts != 2 {
		t.Errorf("started %d times: %q", starts, r.rt.Calls())
	}
	r.rt.Exit(id(1), 0, true)
	r.reported(1, nodev1.AttemptState_ATTEMPT_STATE_COMPLETED)
}
