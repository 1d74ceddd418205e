package agent_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
)

// TestClear ends what runs and deletes all there is; one that cannot be ended keeps
// nothing else from it.
func TestClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := agenttest.New()
		for job := uint64(1); job <= 3; job++ {
			if err := rt.Create(t.Context(), &launch.Launch{ID: id(job)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(rt.Start(t.Context(), id(1)), rt.Start(t.Context(), id(2))); err != nil {
			t.Fatal(err)
		}
		rt.Exit(id(2), 0, false)
		rt.Fail("delete", errors.New("busy"))
		said := 0
		err := agent.Clear(t.Context(), rt, func(runtime.Task) { said++ })
		if err == nil || !strings.Contains(err.Error(), "busy") || said != 2 {
			t.Errorf("cleared %d of 3, %v; want 2, and why not the third", said, err)
		}
		if err := agent.Clear(t.Context(), rt, func(runtime.Task) { said++ }); err != nil || said != 3 {
			t.Errorf("once more: %d in all, %v", said, err)
		}
		for job := uint64(1); job <= 3; job++ {
			if p := rt.Phase(id(job)); p != runtime.Absent {
				t.Errorf("job %d is %s", job, p)
			}
		}
	})
}

// TestClearWaits for a process that does not end, as long as it may.
func TestClearWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := agenttest.New()
		if err := errors.Join(rt.Create(t.Context(), &launch.Launch{ID: id(1)}), rt.Start(t.Context(), id(1))); err != nil {
			t.Fatal(err)
		}
		rt.Ignore(syscall.SIGKILL)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := agent.Clear(ctx, rt, func(runtime.Task) { t.Error("it was cleared") })
		if err == nil || !strings.Contains(err.Error(), "does not end") || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
