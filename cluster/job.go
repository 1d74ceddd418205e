// Package cluster defines the vocabulary of Berth: jobs, attempts, nodes, GPUs,
// shares, and the errors that users see. Its subpackages, such as accounting,
// dispatch and ladder, build on it. It imports nothing of Berth outside this tree,
// does no I/O, reads no clock and starts no goroutine, so that the scheduler, the
// state machine and the simulator share one arithmetic.
//
// Units: memory in MiB, GPU compute in thousandths (milli) of one GPU, CPU in
// thousandths of one core, instants as [Time], spans as time.Duration. Stored
// values are integers.
//
// Values reached through pointers handed out by the state machine (*Job, *Node,
// *Spec) are immutable: a change makes a new value.
package cluster

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/study"
)

// Owner is the user who submitted a job, as identified by the kernel.
type Owner struct {
	UID  UID
	GID  uint32
	Name string
}

// Spec is what a user asked for. It never changes after submit.
type Spec struct {
	Name    string
	Command []string
	// Env holds "KEY=value" lines, in the user's order.
	Env []string
	// Bulk replaces Env and Script where these are large and a store keeps them;
	// see Large.
	Bulk Bulk
	// Dir is the absolute working directory.
	Dir string
	// Image is an image reference, or "" for a host job.
	Image string
	// GPUs is how many GPUs the job needs on each of its nodes, 0–16; for an
	// elastic job see GPURange.
	GPUs int
	// Exclusive asks for whole, unshared GPUs.
	Exclusive bool
	// GPUType restricts the GPU type, "" means any.
	GPUType string
	// Node restricts the node, "" means any.
	Node NodeID
	// GPUMemMiB, GPUMilli and Duration are the user's own numbers, 0 if not given.
	// A declared memory is also the memory cap.
	GPUMemMiB, GPUMilli int64
	Duration            time.Duration
	// MemMiB caps host memory on each node. 0 means the prediction, else the
	// cluster's default, or all memory of nodes that the job has to itself.
	// CPUMilli likewise.
	MemMiB, CPUMilli int64
	// TimeLimit is the time limit; 0 means none.
	TimeLimit time.Duration
	// Stdin, Stdout and Stderr are paths, with Slurm's patterns (%j, %x, …).
	Stdin, Stdout, Stderr string
	// RequeueOnLoss requeues the job when its node is lost.
	RequeueOnLoss bool
	// Signature is the hash under which the job's history is kept; Features is the
	// model's description of the job, opaque here.
	Signature string
	Features  []byte
	Comment   string
	// Deadline is when the job should have ended, 0 for never. DeadlineIn is the
	// same relative to submission, in a request only: coordinators convert it to a
	// Deadline.
	Deadline   Time
	DeadlineIn time.Duration
	// Objective is what the job's GPU type is chosen for, "" for the cluster's
	// policy. MaxPowerW bounds the predicted mean power of all its GPUs,
	// MaxCostMilli its predicted price in thousandths of the currency; 0 is no
	// limit.
	Objective               Objective
	MaxPowerW, MaxCostMilli int64
	// Script is a gzipped batch script that runs in place of Command[0], which then
	// only holds its original name. Empty for none.
	Script []byte
	// Partition is the part of the cluster that the job runs in. In a request, ""
	// means the default one and "a,b" the first that accepts it; after submission
	// it is a single name, or "" if there were no partitions.
	Partition string
	// Checkpoint says how the job saves its state when preempted; only jobs with
	// such a hook are preempted.
	Checkpoint Checkpoint
	// OrCPU lets a job that wants GPUs run on CPU cores alone, on those that it
	// asks for, if that serves its objective better or no GPU could ever run it.
	OrCPU bool
	// Hold means that the job was submitted held.
	Hold bool
	// Begin is the earliest start time, 0 for none.
	Begin Time
	// Depends lists what must happen to other jobs first: all of it or, with
	// DependAny, one of it. KillInvalidDepend cancels the job once that has become
	// impossible; otherwise it waits forever.
	Depends                      []Dependency
	DependAny, KillInvalidDepend bool
	// Warning is the signal sent before the time limit.
	Warning Warning
	// Truncate empties the output files at each start. Otherwise they are appended
	// to.
	Truncate bool
	// Container holds the container options.
	Container Container
	// Nodes is how many nodes the job runs on at once, all or none; 0 means one. It
	// gets the GPUs, cores and memory that it asks for on each. Tasks is how many
	// processes it has on each node; 0 means one.
	Nodes, Tasks int
	// Where restricts the nodes, nil for anywhere.
	Where *Where
	// Mail says whom to notify about the job.
	Mail Mail
	// IdleOK is for how long at a stretch its GPUs may be idle before the idle
	// policy of its partition applies, as far as the partition allows; 0 asks for
	// nothing.
	IdleOK time.Duration
	// NoResize keeps the job's GPU shares as granted, whatever it uses.
	NoResize bool
	// Account is charged for the job, and QOS is its quality of service; in a
	// request "" means the default of each. Nice lowers its priority; only
	// administrators may give a value below 0, which raises it.
	Account, QOS string
	Nice         int32
	// Host holds the partition's host defaults at submission, for what the job does
	// not ask for.
	Host HostTerms
	// Array runs the job once for each of many task numbers; nil is one job.
	Array *Array
	// GPURange is the range of GPUs to run on; the number is chosen when the job
	// starts.
	GPURange GPURange
	// AllMem asks for all memory of a node, in a request only: coordinators convert
	// it to a MemMiB.
	AllMem bool
	// Retry says how often the job is rerun after it failed.
	Retry Retry
	// BatchScaling is how an elastic job uses more GPUs; "" is BatchFixed.
	BatchScaling BatchScaling
	// Study makes the tasks of an array the trials of a search, nil for none.
	Study *study.Study
	// Power holds the power and clock settings of its GPUs, which are then
	// exclusive to it.
	Power GPUPower
	// Service makes the tasks of an array the replicas of a service, nil for none.
	Service *service.Service
	// NodeRange is the range of nodes to run on; the number is chosen when the job
	// starts.
	NodeRange NodeRange
	// Defer lets the job wait for cheaper power as long as it is predicted to end
	// within this time of its submission; the leader then sets Begin. 0 means no
	// waiting.
	Defer time.Duration
	// InPlace lets a job with a range of nodes gain and lose nodes while it runs,
	// where it would otherwise be restarted: its program runs on each node and
	// copes with the changes.
	InPlace bool
	// Program is the hash under which the history of commands is kept that differ
	// from the job's in numbers only; "" for none.
	Program string
	// Data names the data sets that the job reads: it prefers nodes that have them,
	// and finds their paths in its environment.
	Data []string
	// Numbers are the numbers in which the job differs from those commands, as
	// encoded by model.EncodeNumbers.
	Numbers string
}

// Job is one submitted job. Values are immutable.
type Job struct {
	ID JobID
	// Revision is the Raft index of the last change.
	Revision uint64
	Owner    Owner
	Spec     *Spec
	State    JobState
	Reason   Reason
	// Estimates holds one entry per GPU type of the cluster, sorted by type.
	// Estimated is when they were last recomputed while the job waited, 0 for those
	// made at submission.
	Estimates []Estimate
	Estimated Time
	// MinGPUMemMiB is the least memory to reserve next time, raised after running
	// out of GPU memory; NeedWhole demands a whole GPU next time.
	MinGPUMemMiB int64
	NeedWhole    bool
	// MinHostMemMiB is the least host memory to reserve on each node next time, if
	// none is declared.
	MinHostMemMiB int64
	Submitted     Time
	// Eligible is when it last began to wait.
	Eligible Time
	// Started and Ended are those of the current or last attempt.
	Started, Ended Time
	// Queue is the GPU in whose queue the job waits in state QUEUED, and EstStart
	// when the planner expects it to start there.
	Queue    GPUID
	EstStart Time
	// Promised holds the nodes that a waiting job, which is in no queue since it
	// needs several or all of one, was last planned on to keep its deadline, from
	// EstStart on. Values are immutable.
	Promised []NodeID
	// Cancel is the request to end the job, or nil.
	Cancel *CancelRequest
	// Hold is set while the job is held, and Depends holds the state of each of the
	// spec's dependencies; neither is changed in place.
	Hold    *Hold
	Depends []DependState
	// DependAt is when dependencies that are met begin to count, 0 for at once; for
	// a replica that ended soon after its start it is when it may start again.
	DependAt Time
	Attempts []Attempt
	// ArrayJobID is the array that the job is a task of, identified by its first
	// task's id; 0 is none. ArrayTaskID is the task's number.
	ArrayJobID  JobID
	ArrayTaskID uint32
	// Fold holds the ranks, at least two, of tasks that all wait, or ended, in
	// exactly the same way; nil for a single task or job. ID and ArrayTaskID are
	// those of the last one.
	Fold []Span
	// OwnLimit is the time limit of a task whose limit differs from its array's, 0
	// being none; nil otherwise. Spec has it, too.
	OwnLimit *time.Duration
}

// CancelRequest records who asked for a job to end.
type CancelRequest struct {
	At    Time
	By    UID
	Admin bool
	// Why is the study rule's reason for ending a trial, "" otherwise.
	Why string
}

// Last returns the newest attempt, or nil.
func (j *Job) Last() *Attempt {
	if len(j.Attempts) == 0 {
		return nil
	}
	return &j.Attempts[len(j.Attempts)-1]
}

// Live returns the attempt that may hold shares, or nil.
func (j *Job) Live() *Attempt {
	if a := j.Last(); a != nil && a.State.Live() {
		return a
	}
	return nil
}

// Clone returns a copy that may be changed in place: its attempts are copied, but
// share what they point to, as it shares the Spec.
func (j *Job) Clone() *Job {
	c := *j
	c.Attempts = append([]Attempt(nil), j.Attempts...)
	return &c
}

// Attempt is one try to run a job. It has one terminal state and, unless it was
// lost, one Exit.
type Attempt struct {
	No     uint32
	Token  Token
	State  JobState
	Reason Reason
	// Berth is its place, BootID that node's boot id; on several nodes those of the
	// first.
	Berth  Berth
	BootID string
	// Gang is what it has on further nodes, nil if there are none.
	Gang *Gang
	// Port is where its processes find each other on the first node, or where a
	// service replica accepts requests; 0 if there is only one process.
	Port uint16
	// Estimate is the one it was placed by.
	Estimate Estimate
	// Placed is when the plan was committed; Why is the planner's reason for this
	// berth, and Overtook the reason for passing others in the queue.
	Placed, Started, Ended Time
	Why, Overtook          string
	Exit                   *Exit
	Usage                  Usage
	// Neighbours are jobs that shared a GPU with this attempt, in the order in
	// which they met it, at most MaxNeighbours.
	Neighbours []JobID
	// Preempt is set once the attempt was asked to make room.
	Preempt *PreemptRequest
	// GPUMilli is its total GPU allocation in thousandths of whole GPUs; see
	// ShareMilli. It is 0 without GPUs, and for attempts placed before this was
	// kept.
	GPUMilli int64
	// Marks are the time-limit marks already reported.
	Marks MailEvents
	// Idle is how far the idle policy has gone with the attempt, nil before it
	// began.
	Idle *IdleMark
	// Resize records how its shares were changed to match its use, nil if they were
	// not.
	Resize *ResizeMark
	// Progress is its latest progress report, nil for none.
	Progress *Progress
	// Secret is what its credentials are derived from, "" once it ended; see
	// Credential.
	Secret Secret
	// Power lists the power and clock changes to its GPUs, on all its nodes, in the
	// order of the reports; nil if none were asked for.
	Power []CardPower
	// Search is the result of the search for its power cap, nil while nothing is
	// known.
	Search *CapSearch
	// Serving is the serving state of a service replica, nil while it starts.
	Serving *Serving
	// Loan names the partition whose GPUs it has borrowed, "" if they belong to its
	// job's own.
	Loan string
	// Changes records how nodes joined and left while it ran, the newest
	// MaxSizeChanges.
	Changes []SizeChange
}

// MaxNeighbours bounds Attempt.Neighbours.
const MaxNeighbours = 16

// Exit is how the first process of an attempt ended.
type Exit struct {
	// Code is 0–255; if Signal is not 0 it is 128+Signal, as in shells.
	Code, Signal int32
}

// LatestEnd returns the assumed latest end of a job that starts now: its time
// limit, or else the ninth decile of its predicted durations on the GPU type where
// that is longest. Without any prediction it is never.
func (j *Job) LatestEnd(now Time) Time {
	longest := j.Spec.TimeLimit
	if longest == 0 && j.Spec.Service != nil {
		return math.MaxInt64
	}
	if longest == 0 {
		for i := range j.Estimates {
			e := &j.Estimates[i]
			// The ninth decile is 3 times the median for a guess, 1.5 times for a
			// confident prediction; see scheduler/rules/ends.go.
			longest = max(longest, min(e.Duration, MaxTimeDays*24*time.Hour)/1000*time.Duration(3000-3*min(1000, max(0, e.TimeSure()))/2))
		}
		longest = cmp.Or(longest, 3*min(j.Spec.Duration, MaxTimeDays*24*time.Hour))
	}
	if longest <= 0 || now > math.MaxInt64-Time(longest.Microseconds()) {
		return math.MaxInt64
	}
	return now.Add(longest)
}

// Secret is what the credentials of an attempt are derived from. Only coordinators
// have it; an attempt without one has no credentials. It prints as a note that it
// is set.
type Secret string

const (
	// SecretBytes is the length of a Secret.
	SecretBytes = 16
	// MaxCredential bounds the bytes of a credential.
	MaxCredential = 128
	// CredentialVar is the variable that names the file with a job's credential.
	CredentialVar = "BERTH_CREDENTIAL" // #nosec G101 -- a name, and no secret
	// CredentialKey is the metadata key under which requests carry it.
	CredentialKey = "berth-credential" // #nosec G101 -- a name, and no secret
)

// String implements fmt.Stringer without revealing the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "secret"
}

// GoString implements fmt.GoStringer as String does.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// Credential returns the credential that the attempt of j presents on a node, bound
// to job, attempt, owner and node. It is "" for an attempt without a secret.
func (a *Attempt) Credential(j *Job, node NodeID) string {
	if a.Secret == "" {
		return ""
	}
	id := AttemptID{Job: j.ID, No: a.No}
	mac := hmac.New(sha256.New, []byte(a.Secret))
	fmt.Fprintf(mac, "berth credential 1\n%s\n%d\n%s", id, j.Owner.UID, node)
	return id.String() + "." + hex.EncodeToString(mac.Sum(nil))
}

// Holds reports whether credential is that of the live attempt of j for node, where
// its part must also be live. It takes constant time for a credential of the right
// length.
func (j *Job) Holds(credential string, node NodeID) bool {
	a := j.Live()
	if a == nil || a.Secret == "" {
		return false
	}
	rank := a.Rank(node)
	if rank < 0 || !a.PartLive(rank) {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(credential), []byte(a.Credential(j, node))) == 1
}

// CredentialOf returns the attempt that a credential claims to be from. The error
// for malformed text does not repeat it.
func CredentialOf(credential string) (AttemptID, error) {
	name, mac, _ := strings.Cut(credential, ".")
	id, err := ParseAttemptID(name)
	if sum, herr := hex.DecodeString(mac); len(credential) > MaxCredential || err != nil || herr != nil || len(sum) != sha256.Size {
		return AttemptID{}, Errorf(CodeInvalid, "it is not the credential of a job")
	}
	return id, nil
}
