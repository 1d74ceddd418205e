package containerdrt

import (
	"context"
	"errors"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
)

// containerd gives a shim two seconds to tell of its task. A shim of a very busy
// machine may need longer. Then containerd answers all the same, with a state that
// is unknown and the process 0 (services/tasks, getProcessState); nobody may take
// either for what it says.

// errSilent is returned where a shim did not answer silentTries times.
var errSilent = errors.New("its shim does not answer")

const silentTries = 3

// taskOf returns containerd's task of a container, with its true process.
func taskOf(ctx context.Context, c containerd.Container) (containerd.Task, error) {
	for range silentTries {
		task, err := c.Task(ctx, nil)
		if err != nil || task.Pid() != 0 {
			return task, err
		}
	}
	return nil, fmt.Errorf("task %s: %w", c.ID(), errSilent)
}

// statusOf returns a state that is known.
func statusOf(ctx context.Context, task containerd.Task) (containerd.Status, error) {
	for range silentTries {
		st, err := task.Status(ctx)
		if err != nil || st.Status != containerd.Unknown {
			return st, err
		}
	}
	return containerd.Status{}, fmt.Errorf("task %s: %w", task.ID(), errSilent)
}
