package agent

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// verdict turns how a process ended into how its attempt ended. The code and
// the signal are reported as they are, whatever the verdict.
func (a *Agent) verdict(ctx context.Context, t *task, s runtime.Task) *nodev1.Report {
	r := &nodev1.Report{Exit: &nodev1.Exit{Code: int32(s.ExitCode), Signal: int32(s.Signal)}}
	if !s.Started.IsZero() {
		r.Started = timestamppb.New(s.Started)
	}
	if !s.Ended.IsZero() {
		r.Ended = timestamppb.New(s.Ended)
	}
	r.Usage = a.usage(ctx, t, s)
	as, _ := t.wants()
	switch {
	case s.OOMKilled:
		r.State = nodev1.AttemptState_ATTEMPT_STATE_OUT_OF_MEMORY
		r.Reason = string(cluster.ReasonHostOOM)
		r.Detail = fmt.Sprintf("the kernel ended it at its host memory cap of %d MiB; ask for more with --mem", as.GetMemMib())
	case a.faultVerdict(ctx, t, s, r):
	case t.wasOverCap(s):
		overCapReport(r, t.breach)
	case t.madeRoom(s):
		r.State = nodev1.AttemptState_ATTEMPT_STATE_PREEMPTED
		r.Reason = string(cluster.ReasonPreempted)
	case t.stopping == stopTimeLimit:
		r.State = nodev1.AttemptState_ATTEMPT_STATE_TIMEOUT
		r.Reason = string(cluster.ReasonTimeLimit)
		r.Detail = fmt.Sprintf("ran into its time limit of %s", as.GetTimeLimit().AsDuration())
	case t.stopping == stopIdle:
		idleReport(r, t.idle.limit)
	case t.stopping == stopAsked && launcher.RestOfBatch(as): // its script has ended, and all is well here
		r.State, r.Exit = nodev1.AttemptState_ATTEMPT_STATE_COMPLETED, &nodev1.Exit{}
	case t.stopping == stopAsked:
		r.State = nodev1.AttemptState_ATTEMPT_STATE_CANCELLED
	case s.ExitCode == 0:
		r.State = nodev1.AttemptState_ATTEMPT_STATE_COMPLETED
	case a.gpuVerdict(ctx, t, s, r):
	case s.Signal != 0:
		r.State = nodev1.AttemptState_ATTEMPT_STATE_FAILED
		r.Reason = string(cluster.ReasonSignal)
		r.Detail = fmt.Sprintf("ended by signal %d (%s)", int(s.Signal), s.Signal)
	default:
		r.State = nodev1.AttemptState_ATTEMPT_STATE_FAILED
		r.Reason = string(cluster.ReasonExit)
		r.Detail = fmt.Sprintf("exit code %d", s.ExitCode)
	}
	return r
}

func shareMiB(as *nodev1.Assignment) int64 {
	if len(as.GetGpus()) == 0 {
		return 0
	}
	return as.Gpus[0].MemMib
}
