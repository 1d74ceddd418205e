package attempt_test

import (
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/runtime"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const (
	completed = nodev1.AttemptState_ATTEMPT_STATE_COMPLETED
	failed    = nodev1.AttemptState_ATTEMPT_STATE_FAILED
	cancelled = nodev1.AttemptState_ATTEMPT_STATE_CANCELLED
	timeout   = nodev1.AttemptState_ATTEMPT_STATE_TIMEOUT
	preempted = nodev1.AttemptState_ATTEMPT_STATE_PREEMPTED
	lost      = nodev1.AttemptState_ATTEMPT_STATE_LOST
	memory    = nodev1.AttemptState_ATTEMPT_STATE_OUT_OF_MEMORY
)

// TestJudge: what ended an attempt decides, and not its code.
func TestJudge(t *testing.T) {
	t.Parallel()
	well, code3 := runtime.Task{Ended: at(50)}, runtime.Task{ExitCode: 3, Ended: at(50)}
	killed := runtime.Task{ExitCode: 137, Signal: syscall.SIGKILL, Ended: at(50)}
	unknownEnd := runtime.Task{ExitCode: 3}
	oom := killed
	oom.OOMKilled = true
	ends := func(c attempt.Cause) attempt.Life { return attempt.Life{Started: at(0), Cause: c} }
	over := func(since time.Time) attempt.Life {
		return attempt.Life{Cause: attempt.OverCap, Breach: &nodev1.MemBreach{Uuid: "g", HeldMib: 2048, CapMib: 1024, At: timestamppb.New(since)}}
	}
	room := func(told int) attempt.Life {
		return attempt.Life{Cause: attempt.Room, Saving: at(told), Signaled: at(told)}
	}
	fault := func(guilty string) *attempt.ServerFault {
		return &attempt.ServerFault{UUID: "g", Detail: "fault", Guilty: guilty}
	}
	for name, c := range map[string]struct {
		ended          attempt.Ended
		state          nodev1.AttemptState
		reason, detail string
	}{
		"went well":                          {attempt.Ended{Task: well}, completed, "", ""},
		"code":                               {attempt.Ended{Task: code3}, failed, "NonZeroExitCode", "exit code 3"},
		"signal":                             {attempt.Ended{Task: killed}, failed, "RaisedSignal", "ended by signal 9 (killed)"},
		"host memory":                        {attempt.Ended{Task: oom, Life: ends(attempt.Asked)}, memory, "OutOfHostMemory", "the kernel ended it at its host memory cap of 64 MiB; ask for more with --mem"},
		"asked":                              {attempt.Ended{Task: killed, Life: ends(attempt.Asked)}, cancelled, "", ""},
		"asked, and ended well":              {attempt.Ended{Task: well, Life: ends(attempt.Asked)}, cancelled, "", ""},
		"rest of a batch":                    {attempt.Ended{Task: killed, Life: ends(attempt.Asked), Rest: true}, completed, "", ""},
		"rest that failed by itself":         {attempt.Ended{Task: code3, Rest: true}, failed, "NonZeroExitCode", "exit code 3"},
		"limit":                              {attempt.Ended{Task: well, Life: ends(attempt.TimeLimit)}, timeout, "TimeLimit", "ran into its time limit of 1m40s"},
		"idle":                               {attempt.Ended{Task: well, Life: ends(attempt.StoodIdle), Idle: time.Minute}, timeout, "TimeLimit", "the session was idle for 1m0s, its idle limit"},
		"made room":                          {attempt.Ended{Task: code3, Life: room(49)}, preempted, "Preempted", ""},
		"made room at once":                  {attempt.Ended{Task: well, Life: room(50)}, preempted, "Preempted", ""},
		"made room at an unknown time":       {attempt.Ended{Task: unknownEnd, Life: room(51)}, preempted, "Preempted", ""},
		"ended while it was to be told":      {attempt.Ended{Task: code3, Life: attempt.Life{Cause: attempt.Room, Saving: at(40), Signaled: at(51)}}, failed, "NonZeroExitCode", "exit code 3"},
		"ended before it was told":           {attempt.Ended{Task: code3, Life: room(51)}, failed, "NonZeroExitCode", "exit code 3"},
		"ended well before it was told":      {attempt.Ended{Task: well, Life: room(51)}, completed, "", ""},
		"above its share":                    {attempt.Ended{Task: killed, Life: over(at(49))}, memory, "OutOfGPUMemory", "held 2.0 GiB of GPU g, more than its share of 1.0 GiB, and was ended; ask for --gpu-mem 2304MiB or more"},
		"above it, clocks in milliseconds":   {attempt.Ended{Task: killed, Life: over(at(50).Add(999 * time.Microsecond))}, memory, "OutOfGPUMemory", "held 2.0 GiB of GPU g, more than its share of 1.0 GiB, and was ended; ask for --gpu-mem 2304MiB or more"},
		"above it, ended before":             {attempt.Ended{Task: code3, Life: over(at(51))}, failed, "NonZeroExitCode", "exit code 3"},
		"its own fault":                      {attempt.Ended{Task: code3, Server: fault("j7.1")}, failed, "NonZeroExitCode", "its own fault on GPU g ended the MPS server that it shared (exit code 3); run it with --exclusive to find the cause"},
		"its own fault, by a signal":         {attempt.Ended{Task: killed, Server: fault("j7.1")}, failed, "RaisedSignal", "its own fault on GPU g ended the MPS server that it shared (exit code 137); run it with --exclusive to find the cause"},
		"a neighbour's fault":                {attempt.Ended{Task: code3, Server: fault("j8.1")}, lost, "GPUNeighbour", "GPU g: fault, j8.1"},
		"somebody's fault":                   {attempt.Ended{Task: code3, Server: fault("")}, lost, "GPUNeighbour", "GPU g: fault, it is not known which"},
		"a fault that it did not feel":       {attempt.Ended{Task: well, Server: fault("j8.1")}, completed, "", ""},
		"a fault for which it had to end":    {attempt.Ended{Task: well, Server: fault("j8.1"), Life: ends(attempt.CardFault)}, lost, "GPUNeighbour", "GPU g: fault, j8.1"},
		"a card that is gone is for another": {attempt.Ended{Task: killed, Life: ends(attempt.CardGone)}, failed, "RaisedSignal", "ended by signal 9 (killed)"},
	} {
		e, r := c.ended, &nodev1.Report{Exit: &nodev1.Exit{Code: int32(c.ended.Task.ExitCode)}, Usage: &nodev1.Usage{}}
		e.ID, e.As = "j7.1", job(func(as *nodev1.Assignment) { as.MemMib = 64 })
		if !e.Judge(r) {
			e.JudgeExit(r)
		}
		if r.State != c.state || r.Reason != c.reason || r.Detail != c.detail {
			t.Errorf("%s: %s %q %q, want %s %q %q", name, r.State, r.Reason, r.Detail, c.state, c.reason, c.detail)
		}
		if wiped := r.Exit.Code == 0 && c.ended.Task.ExitCode != 0; wiped != (c.state == completed && c.ended.Rest) {
			t.Errorf("%s: exit %v", name, r.Exit)
		}
		if r.Usage.GpuOom != (c.reason == "OutOfGPUMemory") {
			t.Errorf("%s: usage %v", name, r.Usage)
		}
	}
}

// TestJudgeMemory: a share of 1000 MiB, of which 970 are near it.
func TestJudgeMemory(t *testing.T) {
	t.Parallel()
	held := func(peak int64) caps.Held { return caps.Held{UUID: "g", LimitMiB: 1000, PeakMiB: peak} }
	const line = "CUDA out of memory"
	const large = "an allocation of 601 MiB on the GPU was refused; it held 400 MiB at most and its share is 1000 MiB; ask for --gpu-mem 1280MiB or more"
	const own, neighbour, program = "an allocation on the GPU was refused; it held 970 MiB at most and its share is 1000 MiB; ask for --gpu-mem 1280MiB or more",
		"an allocation on GPU g was refused at 969 MiB of its 1000 MiB, while j8.1 held more than its share",
		"exit code 1; its output says \"CUDA out of memory\", but it held only 969 MiB of its 1000 MiB: one large allocation, or a limit of the program's own"
	for name, c := range map[string]struct {
		memory         attempt.Memory
		refused        bool
		state          nodev1.AttemptState // unspecified for memory that explains nothing
		reason, detail string
		peak           int64
	}{
		"nothing said":                {memory: attempt.Memory{Held: held(970), By: "j8.1"}},
		"said so, at its share":       {attempt.Memory{Held: held(970), Line: line}, false, memory, "OutOfGPUMemory", own, 970},
		"so too beside an offender":   {attempt.Memory{Held: held(970), Line: line, By: "j8.1"}, false, memory, "OutOfGPUMemory", own, 970},
		"said so, below it":           {attempt.Memory{Held: held(969), Line: line}, false, failed, "NonZeroExitCode", program, 0},
		"asked for more than is left": {attempt.Memory{Held: held(400), Line: line, AskedMiB: 601, By: "j8.1"}, false, memory, "OutOfGPUMemory", large, 1001},
		"asked for what is left":      {attempt.Memory{Held: held(969), Line: line, AskedMiB: 31}, false, failed, "NonZeroExitCode", program, 0},
		"below it, for an offender":   {attempt.Memory{Held: held(969), Line: line, By: "j8.1"}, false, lost, "GPUNeighbour", neighbour, 0},
		"refused":                     {attempt.Memory{Held: held(970)}, true, memory, "OutOfGPUMemory", own, 970},
		"refused, for an offender":    {attempt.Memory{Held: held(969), By: "j8.1"}, true, lost, "GPUNeighbour", neighbour, 0},
		"the share of its own words":  {attempt.Memory{Held: caps.Held{PeakMiB: 970}, Line: line}, false, memory, "OutOfGPUMemory", own, 970},
	} {
		e := attempt.Ended{ID: "j7.1", Task: runtime.Task{ExitCode: 1}, As: job(func(as *nodev1.Assignment) { as.Gpus = []*nodev1.Share{{Uuid: "g", MemMib: 1000}} })}
		r := &nodev1.Report{Usage: &nodev1.Usage{GpuOom: c.refused}}
		if found := e.JudgeMemory(r, &c.memory); found != (c.detail != "") || r.State != c.state || r.Reason != c.reason || r.Detail != c.detail || r.Usage.GpuMemPeakMib != c.peak {
			t.Errorf("%s: %v, %v, want %s %q %q", name, found, r, c.state, c.reason, c.detail)
		}
		if r.Usage.GpuOom != (c.state == memory) {
			t.Errorf("%s: out of memory %v", name, r.Usage.GpuOom)
		}
	}
}

// TestCutShare: nobody is asked to declare more who was granted it.
func TestCutShare(t *testing.T) {
	t.Parallel()
	for granted, says := range map[int64]string{
		0: "ask for --gpu-mem 2304MiB or more", 2047: "ask for --gpu-mem 2304MiB or more", 2048: "that had been cut to what it used, from 2.0 GiB",
	} {
		e := attempt.Ended{
			As:   job(func(as *nodev1.Assignment) { as.Gpus = []*nodev1.Share{{Uuid: "g", MemMib: 1024, GrantedMib: granted}} }),
			Task: runtime.Task{ExitCode: 137, Signal: syscall.SIGKILL, Ended: at(50)},
			Life: attempt.Life{Cause: attempt.OverCap, Breach: &nodev1.MemBreach{Uuid: "g", HeldMib: 2048, CapMib: 1024, At: timestamppb.New(at(49))}},
		}
		r := &nodev1.Report{Exit: &nodev1.Exit{}, Usage: &nodev1.Usage{}}
		if want := "held 2.0 GiB of GPU g, more than its share of 1.0 GiB, and was ended; " + says; !e.Judge(r) || r.Detail != want {
			t.Errorf("granted %d MiB: %q, want %q", granted, r.Detail, want)
		}
	}
}

// TestPeaksAreTheHighest of what was measured, seen and found.
func TestPeaksAreTheHighest(t *testing.T) {
	t.Parallel()
	over := attempt.Life{Cause: attempt.OverCap, Breach: &nodev1.MemBreach{Uuid: "g", HeldMib: 2048, CapMib: 1024, At: timestamppb.New(at(49))}}
	for _, c := range []struct{ used, want int64 }{{0, 2048}, {2047, 2048}, {3000, 3000}} {
		e := attempt.Ended{Task: runtime.Task{ExitCode: 137, Ended: at(50)}, Life: over}
		r := &nodev1.Report{Usage: &nodev1.Usage{GpuMemPeakMib: c.used}}
		if !e.Judge(r) || r.Usage.GpuMemPeakMib != c.want || !r.Usage.GpuOom {
			t.Errorf("measured %d MiB: %v", c.used, r.Usage)
		}
	}
	for _, c := range []struct{ used, seen, want int64 }{{900, 1000, 1000}, {1000, 900, 1000}} {
		e := attempt.Ended{Task: runtime.Task{ExitCode: 1, Ended: at(50)}}
		r := &nodev1.Report{Usage: &nodev1.Usage{GpuMemPeakMib: c.used}}
		m := &attempt.Memory{Held: caps.Held{UUID: "g", LimitMiB: 1024, PeakMiB: c.seen}, Line: "out of memory"}
		if !e.JudgeMemory(r, m) || r.State != memory || r.Usage.GpuMemPeakMib != c.want {
			t.Errorf("measured %d MiB, seen %d: %v", c.used, c.seen, r)
		}
	}
}
