package faulttest

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/agent/soaktest"
	"github.com/berth-scheduler/berth/cluster"
)

// kill is a way to die of SIGKILL. outside is one that somebody else sends.
type kill struct {
	name, script string
	oom, outside bool
}

// Half of the ways are out of memory. The others come as near to that as they
// can without being it.
var kills = []kill{
	{name: "out of memory", script: "exec tail /dev/zero", oom: true},
	{name: "by itself", script: "kill -9 $$; sleep 60"},
	{name: "a child out of memory", script: "tail /dev/zero; exit $?", oom: true},
	{name: "from outside", script: "sleep 60", outside: true},
	{name: "out of memory at once, in a pipe", script: "tail /dev/zero | cat", oom: true},
	{name: "by itself, with its cap full of page cache", script: "dd if=/dev/zero of=$HOME/f bs=1M count=48 2>/dev/null; rm -f $HOME/f; kill -9 $$; sleep 60"},
}

// TestSoakOutOfMemoryTold ends jobs by the kernel for their memory, and others
// by plain SIGKILL, and looks whether the runtime tells which was which.
func TestSoakOutOfMemoryTold(t *testing.T) {
	for _, runs := range []struct {
		name       string
		containers bool
	}{{"processes", false}, {"containers", true}} {
		t.Run(runs.name, func(t *testing.T) {
			s := newSite(t, runs.containers)
			rt, done, err := s.part.open(t.Context(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			n := soaktest.Times(t, 12, 1000)
			var mu sync.Mutex
			told, wrong := 0, 0
			var wg sync.WaitGroup
			for w := range 4 {
				wg.Go(func() {
					for i := w; i < n; i += 4 {
						ok, why := s.tell(rt, i)
						mu.Lock()
						if ok {
							told++
						} else {
							wrong++
							t.Log(why)
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if err := done(); err != nil {
				t.Error(err)
			}
			if told*1000 < n*998 {
				t.Errorf("told %d of %d apart, want 99.8 %%", told, n)
			}
			for _, l := range append(s.processes(), s.groups()...) {
				t.Errorf("left behind: %s", l)
			}
			t.Logf("soak: %d kills, half of them for memory: %d told apart, %d not", n, told, wrong)
		})
	}
}

// tell runs one job that is killed, and reports whether its end says why.
func (s *site) tell(rt runtime.Runtime, i int) (ok bool, why string) {
	k := kills[i%len(kills)]
	id := cluster.AttemptID{Job: cluster.JobID(i + 1), No: 1}
	out := s.output(id)
	l := &launch.Launch{
		ID: id, Token: 7, UID: user, GID: user, Groups: []uint32{user}, Args: []string{"/bin/sh", "-c", "echo ran; " + k.script},
		Env: []string{"PATH=/usr/bin:/bin", "HOME=" + s.out, mark + "=" + filepath.Base(filepath.Dir(s.out))}, Dir: "/", Stdout: out, Stderr: out, MemBytes: 32 << 20,
	}
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	fail := func(what string, err error) (bool, string) {
		return false, fmt.Sprintf("%s, %s: %s: %v", id, k.name, what, err)
	}
	if err := rt.Create(ctx, l); err != nil {
		return fail("create", err)
	}
	if err := rt.Start(ctx, id); err != nil {
		return fail("start", err)
	}
	for sent := false; ; time.Sleep(10 * time.Millisecond) {
		task, err := rt.Inspect(ctx, id)
		if err != nil {
			return fail("inspect", err)
		}
		if task.Phase == runtime.Stopped || task.Phase == runtime.Lost {
			ok = task.Phase == runtime.Stopped && task.OOMKilled == k.oom && (k.oom || task.ExitCode == 128+int(syscall.SIGKILL))
			why = fmt.Sprintf("%s, %s: ended as %+v", id, k.name, task)
			break
		}
		if k.outside && !sent && s.runs(id) > 0 {
			if err := rt.Signal(ctx, id, syscall.SIGKILL); err != nil {
				return fail("signal", err)
			}
			sent = true
		}
	}
	for ; ; time.Sleep(100 * time.Millisecond) {
		err := rt.Delete(ctx, id)
		if err == nil {
			return ok, why
		}
		if ctx.Err() != nil {
			return fail("delete", err)
		}
	}
}
