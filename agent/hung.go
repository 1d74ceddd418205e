package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/agent/proc"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// hangs records the processes of an attempt that wait in the kernel although they got SIGKILL,
// for who asks this machine what hangs, and returns the first, or "".
func (t *task) hangs(since time.Time) string {
	t.hung.over()
	g := groupOf(t.runtime(), t.id)
	if g == nil {
		return ""
	}
	pids, _ := g.Processes() // with an error, those found before
	found := proc.HungOf(t.agent.cfg.Health.Proc, pids)
	if len(found) == 0 {
		return ""
	}
	first := found[0].String()
	if more := len(found) - 1; more > 0 {
		first += fmt.Sprintf(", and %d more", more)
	}
	t.hung = t.agent.cfg.Underway.Hangs(wait.Process+first+" of job "+t.id.Job.String(), since)
	return first
}

// hung ends the record of processes that hang; nil when there is none.
type hung func()

func (h hung) over() {
	if h != nil {
		h()
	}
}

// delete removes what the runtime keeps of an attempt that has ended, with every process left.
func (t *leaving) delete(ctx context.Context, rt runtime.Runtime) error {
	err := rt.Delete(ctx, t.id)
	if t.hung.over(); err != nil {
		if ended := t.end.Ended.AsTime(); time.Since(ended) >= t.agent.cfg.Health.Unkillable {
			if first := t.hangs(ended); first != "" {
				return fmt.Errorf("%w: process %s does not end", err, first)
			}
		}
	}
	return err
}
