package agent

import (
	"context"
	"strings"

	"github.com/berth-scheduler/berth/agent/hooks"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Hooks runs an operator's programs before and after each attempt. Calls are
// safe for concurrent use on different attempts.
type Hooks interface {
	// Has reports whether there is a hook of the given kind.
	Has(hooks.Kind) bool
	// Run runs the hook to its end; without one it does nothing. The error says in one line
	// what is wrong.
	Run(ctx context.Context, kind hooks.Kind, job *hooks.Job) error
}

func hookJob(node cluster.NodeID, kind hooks.Kind, as *nodev1.Assignment, end *nodev1.Report) *hooks.Job {
	j := &hooks.Job{
		Hook: kind, Job: as.Job, Attempt: conv.AttemptOf(as).String(), Name: as.Name, User: as.User, UID: as.Uid, GID: as.Gid,
		Node: string(node), Restarts: max(1, as.Attempt) - 1, Partition: as.Partition, Image: as.Image,
		CPUMilli: as.CpuMilli, MemMiB: as.MemMib, GPUs: []hooks.GPU{},
	}
	for _, g := range as.Gpus {
		j.GPUs = append(j.GPUs, hooks.GPU{UUID: g.Uuid, MemMiB: g.MemMib, Milli: g.Milli, Exclusive: g.Exclusive})
	}
	if end != nil {
		j.End = &hooks.End{
			State:    strings.TrimPrefix(end.State.String(), "ATTEMPT_STATE_"),
			ExitCode: end.GetExit().GetCode(), Signal: end.GetExit().GetSignal(), Reason: end.Reason,
		}
	}
	return j
}

// maxDrainReason is the longest reason that coordinators accept.
const maxDrainReason = 256

// drainReason clips s to what coordinators accept.
func drainReason(s string) string {
	if len(s) > maxDrainReason {
		s = s[:maxDrainReason-3] + "..."
	}
	return strings.ToValidUTF8(s, "")
}
