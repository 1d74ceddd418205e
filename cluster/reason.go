package cluster

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
	ReasonNodeDown          ReasonCode = "ReqNodeNotAvail"          // every node that could run it is drained or silent
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
