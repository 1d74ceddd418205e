package agent

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// Clear ends all tasks of a runtime and removes what is left of each, which it tells
// said: for a node whose agent will not run again. Until ctx ends it waits for processes
// that do not die.
func Clear(ctx context.Context, rt runtime.Runtime, said func(runtime.Task)) error {
	tasks, err := rt.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range tasks {
		if err := clearTask(ctx, rt, t.ID); err != nil {
			errs = append(errs, fmt.Errorf("attempt %s: %w", t.ID, err))
			continue
		}
		said(t)
	}
	return errors.Join(errs...)
}

func clearTask(ctx context.Context, rt runtime.Runtime, id cluster.AttemptID) error {
	for {
		if err := rt.Signal(ctx, id, syscall.SIGKILL); err != nil {
			return err
		}
		t, err := rt.Inspect(ctx, id)
		if err != nil {
			return err
		}
		if t.Phase != runtime.Running {
			return rt.Delete(ctx, id)
		}
		if !wait.Sleep(ctx, 100*time.Millisecond) {
			return errors.New("its process does not end, though killed; see ps for what it waits for (state D), and restart the node if nothing else helps")
		}
	}
}
