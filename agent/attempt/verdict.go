package attempt

import (
	"cmp"
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// Ended is what is known of an attempt whose process has ended.
type Ended struct {
	ID     string
	Task   runtime.Task
	As     *nodev1.Assignment // nil for an unknown attempt
	Life   Life
	Server *ServerFault // of the server through which it shared its GPU; nil for none
	Idle   time.Duration
	// Rest reports whether it is the part of a batch job on a node where the script does
	// not run: being asked to end is then its successful end.
	Rest bool
}

// ServerFault is the end of the server through which an attempt shared its GPU.
type ServerFault struct {
	UUID, Detail string
	Guilty       string // the attempt at fault, "" when unknown
}

// Memory is what is known about the GPU memory of a failed attempt.
type Memory struct {
	caps.Held
	Line     string // line of its output that reports out of memory; "" for none
	AskedMiB int64  // size of the refused allocation, from Line; 0: unknown
	By       string // attempt that then held more than its share of the GPU; "" for none
}

func set(r *nodev1.Report, s nodev1.AttemptState, why cluster.ReasonCode, format string, args ...any) {
	r.State, r.Reason, r.Detail = s, string(why), fmt.Sprintf(format, args...)
}

// Judge turns the end of a process into the end of its attempt, in a report that already
// has the measurements. It reports false for an attempt that failed by itself, which is
// left to JudgeMemory and JudgeExit.
func (e *Ended) Judge(r *nodev1.Report) bool {
	switch s := &e.Task; {
	case s.OOMKilled:
		set(r, nodev1.AttemptState_ATTEMPT_STATE_OUT_OF_MEMORY, cluster.ReasonHostOOM,
			"the kernel ended it at its host memory cap of %s; ask for more with --mem", cluster.MemText(e.As.GetMemMib()))
	case e.Server != nil && (s.ExitCode != 0 || e.Life.Cause == CardFault):
		e.judgeServer(r)
	case e.Life.wasOverCap(s.Ended):
		b := e.Life.Breach
		peak := max(r.Usage.GpuMemPeakMib, b.HeldMib)
		r.Usage.GpuMemPeakMib, r.Usage.GpuOom = peak, true
		held, share := cluster.MemTexts(peak, b.CapMib)
		set(r, nodev1.AttemptState_ATTEMPT_STATE_OUT_OF_MEMORY, cluster.ReasonGPUOOM,
			"held %s of GPU %s, more than its share of %s, and was ended; %s",
			held, b.Uuid, share, e.advice(b.Uuid, peak, b.CapMib))
	case e.Life.madeRoom(s.Ended):
		set(r, nodev1.AttemptState_ATTEMPT_STATE_PREEMPTED, cluster.ReasonPreempted, "")
	case e.Life.Cause == TimeLimit:
		set(r, nodev1.AttemptState_ATTEMPT_STATE_TIMEOUT, cluster.ReasonTimeLimit, "ran into its time limit of %s", cluster.TimeText(e.As.GetTimeLimit().AsDuration()))
	case e.Life.Cause == StoodIdle:
		set(r, nodev1.AttemptState_ATTEMPT_STATE_TIMEOUT, cluster.ReasonTimeLimit,
			"the session was idle for %s, its idle limit", e.Idle)
	case e.Life.Cause == Asked && e.Rest:
		r.State, r.Exit = nodev1.AttemptState_ATTEMPT_STATE_COMPLETED, &nodev1.Exit{}
	case e.Life.Cause == Asked:
		r.State = nodev1.AttemptState_ATTEMPT_STATE_CANCELLED
	case s.ExitCode == 0:
		r.State = nodev1.AttemptState_ATTEMPT_STATE_COMPLETED
	default:
		return false
	}
	return true
}

// advice says what follows from a peak above a limit: the owner need do nothing where the
// share had been cut.
func (e *Ended) advice(uuid string, peak, limit int64) string {
	for _, g := range e.As.GetGpus() {
		if g.Uuid == uuid && g.GrantedMib > g.MemMib && peak <= g.GrantedMib {
			return "that had been cut to what it used, from " + cluster.MemText(g.GrantedMib)
		}
	}
	return "ask for --gpu-mem " + caps.SuggestText(peak, limit) + " or more"
}

// judgeServer judges an attempt whose server ended by a fault: if the attempt caused the
// fault, it is its own failure; otherwise it runs again.
func (e *Ended) judgeServer(r *nodev1.Report) {
	f := e.Server
	switch f.Guilty {
	case e.ID:
		set(r, nodev1.AttemptState_ATTEMPT_STATE_FAILED, e.exitReason(),
			"its own fault on GPU %s ended the MPS server that it shared (exit code %d); run it with --exclusive to find the cause", f.UUID, e.Task.ExitCode)
	default:
		set(r, nodev1.AttemptState_ATTEMPT_STATE_LOST, cluster.ReasonGPUNeighbour, "GPU %s: %s, %s", f.UUID, f.Detail, cmp.Or(f.Guilty, "it is not known which"))
	}
}

func (e *Ended) exitReason() cluster.ReasonCode {
	if e.Task.Signal != 0 {
		return cluster.ReasonSignal
	}
	return cluster.ReasonExit
}

// JudgeMemory judges an attempt that failed by itself: whether it ran out of GPU memory,
// whose fault that was, and what its owner should request. It reports false when GPU memory
// explains nothing.
func (e *Ended) JudgeMemory(r *nodev1.Report, m *Memory) bool {
	limit, peak := m.LimitMiB, max(m.PeakMiB, r.Usage.GpuMemPeakMib)
	if limit == 0 && len(e.As.GetGpus()) > 0 {
		limit = e.As.Gpus[0].MemMib
	}
	held, share := cluster.MemTexts(peak, limit)
	refused := r.Usage.GpuOom // the provider itself refused an allocation
	near := m.Near || peak*1000 >= limit*970 || m.AskedMiB > 0 && peak+m.AskedMiB > limit
	switch {
	case (refused || m.Line != "") && !near && m.By != "":
		r.Usage.GpuOom = false
		set(r, nodev1.AttemptState_ATTEMPT_STATE_LOST, cluster.ReasonGPUNeighbour,
			"an allocation on GPU %s was refused at %s of its %s, while %s held more than its share", m.UUID, held, share, m.By)
	case refused, m.Line != "" && near:
		// If it asked for more than its share, it needs more: no neighbour is at fault.
		r.Usage.GpuOom, r.Usage.GpuMemPeakMib = true, peak+m.AskedMiB
		set(r, nodev1.AttemptState_ATTEMPT_STATE_OUT_OF_MEMORY, cluster.ReasonGPUOOM,
			"an allocation %son the GPU was refused; it held %s at most and its share is %s; %s",
			ofSize(m.AskedMiB), held, share, e.advice(m.UUID, peak+m.AskedMiB, limit))
	case m.Line != "":
		set(r, nodev1.AttemptState_ATTEMPT_STATE_FAILED, e.exitReason(),
			"exit code %d; its output says %q, but it held only %s of its %s: one large allocation, or a limit of the program's own",
			e.Task.ExitCode, m.Line, held, share)
	default:
		return false
	}
	return true
}

// ofSize words the size of an allocation for a sentence, if it is known.
func ofSize(mib int64) string {
	if mib == 0 {
		return ""
	}
	return "of " + cluster.MemText(mib) + " "
}

// JudgeExit judges an attempt that failed by itself by its exit code and signal alone.
func (e *Ended) JudgeExit(r *nodev1.Report) {
	if s := e.Task.Signal; s != 0 {
		set(r, nodev1.AttemptState_ATTEMPT_STATE_FAILED, cluster.ReasonSignal, "ended by signal %d (%s)", int(s), s)
		return
	}
	set(r, nodev1.AttemptState_ATTEMPT_STATE_FAILED, cluster.ReasonExit, "exit code %d", e.Task.ExitCode)
}
