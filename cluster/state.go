package cluster

import "fmt"

// JobState is where a job, or one attempt of it, stands.
//
//	PENDING ─▶ QUEUED ─▶ STARTING ─▶ RUNNING ─▶ COMPLETING ─▶ terminal
//	   ▲         │ ▲        │  ▲        │ ▲         │
//	   └─────────┘ │        ▼  │        ▼ │         ▼
//	   (requeue)   └──── UNREACHABLE ◀───────────────
//
// PENDING waits for no GPU in particular, QUEUED waits in the queue of one
// GPU. UNREACHABLE means that the node is silent and nobody knows more.
type JobState uint8

// The states of a job. Attempts use those from JobStarting on.
const (
	JobPending JobState = iota + 1
	JobQueued
	JobStarting
	JobRunning
	JobCompleting
	JobUnreachable
	JobCompleted
	JobFailed
	JobCancelled
	JobTimeout
	JobOutOfMemory
	JobNodeFail
	JobPreempted
	JobDeadline
)

var stateNames = [...]struct{ name, code string }{
	0:              {"UNKNOWN", "??"},
	JobPending:     {"PENDING", "PD"},
	JobQueued:      {"QUEUED", "QD"},
	JobStarting:    {"STARTING", "CF"},
	JobRunning:     {"RUNNING", "R"},
	JobCompleting:  {"COMPLETING", "CG"},
	JobUnreachable: {"UNREACHABLE", "UN"},
	JobCompleted:   {"COMPLETED", "CD"},
	JobFailed:      {"FAILED", "F"},
	JobCancelled:   {"CANCELLED", "CA"},
	JobTimeout:     {"TIMEOUT", "TO"},
	JobOutOfMemory: {"OUT_OF_MEMORY", "OOM"},
	JobNodeFail:    {"NODE_FAIL", "NF"},
	JobPreempted:   {"PREEMPTED", "PR"},
	JobDeadline:    {"DEADLINE", "DL"},
}

// Valid reports whether s is one of the named states.
func (s JobState) Valid() bool { return s >= JobPending && s <= JobDeadline }

// String returns the long name in capitals, "UNKNOWN" for no state.
func (s JobState) String() string {
	if !s.Valid() {
		return stateNames[0].name
	}
	return stateNames[s].name
}

// Code returns Slurm's compact code where Slurm has one ("PD", "R", "CD").
// QD and UN are ours.
func (s JobState) Code() string {
	if !s.Valid() {
		return stateNames[0].code
	}
	return stateNames[s].code
}

// ParseJobState reads a long name or a compact code, in capitals.
func ParseJobState(s string) (JobState, error) {
	for i := JobPending; i <= JobDeadline; i++ {
		if stateNames[i].name == s || stateNames[i].code == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("unknown job state %q", s)
}

// Terminal reports whether nothing can follow s.
func (s JobState) Terminal() bool { return s >= JobCompleted && s <= JobDeadline }

// Waiting reports whether a job in s has no attempt under way.
func (s JobState) Waiting() bool { return s == JobPending || s == JobQueued }

// Live reports whether an attempt in s may hold a share of a GPU.
func (s JobState) Live() bool { return s >= JobStarting && s <= JobUnreachable }

// CanMove reports whether a job in state from may pass to state to. Terminal
// states move nowhere; a job may return from a live state to PENDING only
// because its attempt ended and it is to run again.
func CanMove(from, to JobState) bool {
	switch {
	case !from.Valid() || !to.Valid() || from == to || from.Terminal():
		return false
	case from == JobPending:
		return to == JobQueued || to == JobStarting || to == JobCancelled || to == JobDeadline || to == JobFailed
	case from == JobQueued:
		return to == JobPending || to == JobStarting || to == JobCancelled || to == JobDeadline || to == JobFailed
	case to == JobPending:
		return true
	case to == JobQueued:
		return false
	case from == JobUnreachable, to == JobUnreachable, to.Terminal():
		return true
	default:
		return to > from // STARTING → RUNNING → COMPLETING
	}
}

// ReasonCode says in one word why a job waits or how it ended. Codes are
// stable and meet Slurm's where the meaning is the same.
type ReasonCode string

// Reasons to wait, from the one that will never pass to the one that passes
// by itself, then reasons to have ended.
const (
	ReasonNone              ReasonCode = "None"
	ReasonNeverFits         ReasonCode = "NeverFits"                // no GPU of the cluster is large enough
	ReasonNoNodes           ReasonCode = "NoNodes"                  // no node is registered
	ReasonHeldUser          ReasonCode = "JobHeldUser"              // until its owner releases it
	ReasonHeldAdmin         ReasonCode = "JobHeldAdmin"             // until an administrator releases it
	ReasonDependency        ReasonCode = "Dependency"               // on other jobs
	ReasonDependNever       ReasonCode = "DependencyNeverSatisfied" // other jobs ended otherwise than it needs
	ReasonBeginTime         ReasonCode = "BeginTime"                // its time has not come
	ReasonArrayLimit        ReasonCode = "JobArrayTaskLimit"        // as many tasks of its array run as may
	ReasonStandby           ReasonCode = "Standby"                  // its service has as many replicas as it is to have
	ReasonNodeDown          ReasonCode = "ReqNodeNotAvail"          // every node that could run it is drained or silent
	ReasonPower             ReasonCode = "NodePoweringUp"           // nodes are powered up for it
	ReasonPartitionDown     ReasonCode = "PartitionDown"            // its partition starts nothing
	ReasonReservationGone   ReasonCode = "ReservationDeleted"       // the reservation that it asks for is not there any more
	ReasonReservationDenied ReasonCode = "ReservationInvalid"       // that reservation is not for it
	ReasonReservation       ReasonCode = "Reservation"              // until a reservation begins, or others' ends
	ReasonWhere             ReasonCode = "BadConstraints"           // the nodes that it asks for have not what it needs
	ReasonPartition         ReasonCode = "Partition"                // only the nodes of its partition count
	ReasonGPUType           ReasonCode = "GPUType"                  // no GPU of the wanted type
	ReasonExclusive         ReasonCode = "WholeGPUBusy"             // wants a GPU alone, none is empty
	ReasonGPUs              ReasonCode = "GPUCount"                 // not enough GPUs free on one node
	ReasonNodes             ReasonCode = "NodeCount"                // not enough nodes have what it needs free
	ReasonGPUMem            ReasonCode = "GPUMemory"                // GPU memory is taken
	ReasonGPUCompute        ReasonCode = "GPUCompute"               // GPU compute is taken
	ReasonGPUSlots          ReasonCode = "GPUSlots"                 // as many jobs share each fitting GPU as may
	ReasonHostMem           ReasonCode = "HostMemory"               // host memory is taken
	ReasonCPU               ReasonCode = "CPU"                      // cores are taken
	ReasonSharing           ReasonCode = "Sharing"                  // may not share with who is on the card
	ReasonQueueOrder        ReasonCode = "Priority"                 // others are before it in the GPU's queue
	ReasonTenantCells       ReasonCode = "AssocGrpGRES"             // beyond what its tenant is guaranteed
	ReasonResources         ReasonCode = "Resources"                // first in its queue, waits for a share to end
	ReasonUnconfirmed       ReasonCode = "Planning"                 // not looked at yet
	ReasonRequeued          ReasonCode = "Requeued"                 // will run again
	ReasonExit              ReasonCode = "NonZeroExitCode"          // ended with a code other than 0
	ReasonSignal            ReasonCode = "RaisedSignal"             // ended by a signal
	ReasonTimeLimit         ReasonCode = "TimeLimit"                // ran into its time limit
	ReasonHostOOM           ReasonCode = "OutOfHostMemory"          // the kernel ended it at its memory cap
	ReasonGPUOOM            ReasonCode = "OutOfGPUMemory"           // an allocation on the GPU was refused
	ReasonGPUNeighbour      ReasonCode = "GPUNeighbour"             // another on its GPU was at fault, or took its memory
	ReasonLaunch            ReasonCode = "LaunchFailed"             // the command never ran
	ReasonGPUFault          ReasonCode = "GPUFault"                 // its GPU failed; no fault of the job's
	ReasonGPUCheck          ReasonCode = "GPUCheckFailed"           // its GPU was found unsound before it began
	ReasonGPUReturning      ReasonCode = "GPUReturning"             // it ended, and its GPU memory is not back yet
	ReasonUnkillable        ReasonCode = "Unkillable"               // a process of it cannot be ended
	ReasonPulling           ReasonCode = "PullingImage"             // its image is being fetched to its node
	ReasonNodeFault         ReasonCode = "NodeFault"                // the node could not run it; no fault of the job's
	ReasonNotReady          ReasonCode = "GangNotReady"             // not all of its nodes were ready to start in time
	ReasonNodeLost          ReasonCode = "NodeLost"                 // the node rebooted or was fenced under it
	ReasonRuntimeLost       ReasonCode = "RuntimeLost"              // the runtime lost its process
	ReasonByUser            ReasonCode = "CancelledByUser"          // by its owner
	ReasonByAdmin           ReasonCode = "CancelledByAdmin"         // by an administrator
	ReasonStale             ReasonCode = "StalePlan"                // the plan met a newer state
	ReasonPreempted         ReasonCode = "Preempted"                // made room for others, with its state saved
	ReasonDeadline          ReasonCode = "DeadLine"                 // its deadline passed before it started
	ReasonIdle              ReasonCode = "GPUIdle"                  // its GPUs stand idle
	ReasonStudy             ReasonCode = "StoppedEarly"             // a trial that its study's rule ended
	ReasonReplaced          ReasonCode = "Replaced"                 // a replica that its service has no use for any more
	ReasonOvertake          ReasonCode = "OvertakeNoReason"         // a plan that overtakes must say why
)

// Reason is a code with its numbers in words, for example
// {GPUMemory, "GPU 3 of n7: 11.2 GiB free, needs 13.0 GiB"}.
type Reason struct {
	Code   ReasonCode
	Detail string
}

// String returns "Code" or "Code: detail".
func (r Reason) String() string {
	if r.Detail == "" {
		return string(r.Code)
	}
	return string(r.Code) + ": " + r.Detail
}
