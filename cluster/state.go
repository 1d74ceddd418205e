package cluster

import "fmt"

// JobState is the state of a job or of one of its attempts.
//
//	PENDING ─▶ QUEUED ─▶ STARTING ─▶ RUNNING ─▶ COMPLETING ─▶ terminal
//	   ▲         │ ▲        │  ▲        │ ▲         │
//	   └─────────┘ │        ▼  │        ▼ │         ▼
//	   (requeue)   └──── UNREACHABLE ◀───────────────
//
// PENDING jobs wait for no particular GPU, QUEUED ones in the queue of one GPU.
// UNREACHABLE means that the node is silent and nothing more is known.
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

// Terminal reports whether s is final.
func (s JobState) Terminal() bool { return s >= JobCompleted && s <= JobDeadline }

// Waiting reports whether a job in s has no attempt in progress.
func (s JobState) Waiting() bool { return s == JobPending || s == JobQueued }

// Live reports whether an attempt in s may hold a share of a GPU.
func (s JobState) Live() bool { return s >= JobStarting && s <= JobUnreachable }

// CanMove reports whether a job may pass from state from to state to. Terminal
// states are final; a job may return from a live state to PENDING only because its
// attempt ended and the job is to be rerun.
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

// ReasonCode says in one word why a job waits or how it ended. Codes are stable and
// match Slurm's where the meaning is the same.
type ReasonCode string

// Reasons to wait, from permanent to transient, then reasons for having ended.
const (
	ReasonNone              ReasonCode = "None"
	ReasonNeverFits         ReasonCode = "NeverFits"                // no GPU of the cluster is large enough
	ReasonNoNodes           ReasonCode = "NoNodes"                  // no node is registered
	ReasonHeldUser          ReasonCode = "JobHeldUser"              // until its owner releases it
	ReasonHeldAdmin         ReasonCode = "JobHeldAdmin"             // until an administrator releases it
	ReasonDependency        ReasonCode = "Dependency"               // waits for other jobs
	ReasonDependNever       ReasonCode = "DependencyNeverSatisfied" // other jobs ended otherwise than it needs
	ReasonBeginTime         ReasonCode = "BeginTime"                // its time has not come
	ReasonArrayLimit        ReasonCode = "JobArrayTaskLimit"        // as many tasks of its array run as allowed
	ReasonStandby           ReasonCode = "Standby"                  // its service already has enough replicas
	ReasonNodeDown          ReasonCode = "ReqNodeNotAvail"          // every node that could run it is drained or silent
	ReasonPower             ReasonCode = "NodePoweringUp"           // nodes are powered up for it
	ReasonCut               ReasonCode = "GPUBeingCut"              // a GPU in MIG mode is cut anew for it
	ReasonPartitionDown     ReasonCode = "PartitionDown"            // its partition starts nothing
	ReasonReservationGone   ReasonCode = "ReservationDeleted"       // the reservation that it asks for no longer exists
	ReasonReservationDenied ReasonCode = "ReservationInvalid"       // that reservation does not admit it
	ReasonReservation       ReasonCode = "Reservation"              // until a reservation begins, or others' ends
	ReasonWhere             ReasonCode = "BadConstraints"           // the nodes that it asks for lack what it needs
	ReasonPartition         ReasonCode = "Partition"                // only the nodes of its partition count
	ReasonGPUType           ReasonCode = "GPUType"                  // no GPU of the requested type
	ReasonExclusive         ReasonCode = "WholeGPUBusy"             // needs a whole GPU and none is empty
	ReasonGPUs              ReasonCode = "GPUCount"                 // not enough GPUs free on one node
	ReasonNodes             ReasonCode = "NodeCount"                // not enough nodes have the free resources it needs
	ReasonGPUMem            ReasonCode = "GPUMemory"                // GPU memory is taken
	ReasonGPUCompute        ReasonCode = "GPUCompute"               // GPU compute is taken
	ReasonGPUSlots          ReasonCode = "GPUSlots"                 // each fitting GPU is shared by as many jobs as allowed
	ReasonHostMem           ReasonCode = "HostMemory"               // host memory is taken
	ReasonCPU               ReasonCode = "CPU"                      // cores are taken
	ReasonSharing           ReasonCode = "Sharing"                  // may not share with the jobs on the GPU
	ReasonQueueOrder        ReasonCode = "Priority"                 // others are before it in the GPU's queue
	ReasonTenantCells       ReasonCode = "AssocGrpGRES"             // exceeds what its tenant is guaranteed
	ReasonResources         ReasonCode = "Resources"                // first in its queue, waits for a share to be freed
	ReasonUnconfirmed       ReasonCode = "Planning"                 // not considered yet
	ReasonRequeued          ReasonCode = "Requeued"                 // will run again
	ReasonExit              ReasonCode = "NonZeroExitCode"          // exited with a code other than 0
	ReasonSignal            ReasonCode = "RaisedSignal"             // ended by a signal
	ReasonTimeLimit         ReasonCode = "TimeLimit"                // hit its time limit
	ReasonHostOOM           ReasonCode = "OutOfHostMemory"          // the kernel killed it at its memory cap
	ReasonGPUOOM            ReasonCode = "OutOfGPUMemory"           // an allocation on the GPU failed
	ReasonGPUNeighbour      ReasonCode = "GPUNeighbour"             // a neighbour on its GPU was at fault, or took its memory
	ReasonLaunch            ReasonCode = "LaunchFailed"             // the command never ran
	ReasonGPUFault          ReasonCode = "GPUFault"                 // its GPU failed; no fault of the job's
	ReasonGPUCheck          ReasonCode = "GPUCheckFailed"           // its GPU failed a check before it began
	ReasonGPUReturning      ReasonCode = "GPUReturning"             // it ended, and its GPU memory is not released yet
	ReasonUnkillable        ReasonCode = "Unkillable"               // one of its processes cannot be killed
	ReasonPulling           ReasonCode = "PullingImage"             // its image is being fetched to its node
	ReasonNodeFault         ReasonCode = "NodeFault"                // the node could not run it; no fault of the job's
	ReasonNotReady          ReasonCode = "GangNotReady"             // not all of its nodes were ready to start in time
	ReasonNodeLost          ReasonCode = "NodeLost"                 // the node rebooted or was fenced while it ran
	ReasonRuntimeLost       ReasonCode = "RuntimeLost"              // the runtime lost its process
	ReasonByUser            ReasonCode = "CancelledByUser"          // by its owner
	ReasonByAdmin           ReasonCode = "CancelledByAdmin"         // by an administrator
	ReasonStale             ReasonCode = "StalePlan"                // the plan was made from an older state
	ReasonPreempted         ReasonCode = "Preempted"                // preempted with its state saved
	ReasonDeadline          ReasonCode = "DeadLine"                 // its deadline passed before it started
	ReasonIdle              ReasonCode = "GPUIdle"                  // its GPUs are idle
	ReasonStudy             ReasonCode = "StoppedEarly"             // a trial that its study's rule stopped
	ReasonReplaced          ReasonCode = "Replaced"                 // a replica that its service no longer needs
	ReasonOvertake          ReasonCode = "OvertakeNoReason"         // a plan that overtakes must say why
)

// Reason is a code with its numbers in words, for example {GPUMemory, "GPU 3 of n7:
// 11.2 GiB free, needs 13.0 GiB"}.
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
