// Package cluster is the vocabulary of Berth: jobs, attempts, nodes, GPUs,
// shares, and the errors that users see. Packages beside it hold what stands on
// these words: accounting, dispatch, ladder. It imports nothing of ours, does no I/O, reads no clock and
// starts no goroutine, so that the scheduler, the state machine and the
// simulator share one arithmetic.
//
// Units: memory in MiB, compute in thousandths (milli) of one GPU, CPU in
// thousandths of one core, instants as [Time], spans as time.Duration. Stored
// values are integers.
//
// Values reached through pointers handed out by the state machine (*Job,
// *Node, *Spec) are immutable: a change makes a new value.
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

// Owner is who submitted a job, as the kernel named them.
type Owner struct {
	UID  UID
	GID  uint32
	Name string
}

// Spec is what a user asked for. It never changes after submit.
type Spec struct {
	Name    string
	Command []string
	// Env is "KEY=value" lines, in the user's order.
	Env []string
	// Bulk is there in place of Env and Script where these are large and a store
	// keeps them; see Large.
	Bulk Bulk
	// Dir is the absolute working directory.
	Dir string
	// Image is an image reference, or "" for a host job.
	Image string
	// GPUs is how many GPUs of each of its nodes the job needs, 0–16; of an elastic job
	// see GPURange.
	GPUs int
	// Exclusive asks for whole GPUs alone.
	Exclusive bool
	// GPUType restricts the type, "" means any.
	GPUType string
	// Node restricts the node, "" means any.
	Node NodeID
	// GPUMemMiB, GPUMilli, Duration are the user's own numbers, 0 when not
	// given. A declared memory is also the cap.
	GPUMemMiB, GPUMilli int64
	Duration            time.Duration
	// MemMiB caps host memory on each node; 0 takes what is predicted, else the
	// cluster's default, and all of nodes that are the job's own. CPUMilli likewise.
	MemMiB, CPUMilli int64
	// TimeLimit ends the job; 0 means none.
	TimeLimit time.Duration
	// Stdin, Stdout and Stderr are paths, with Slurm's patterns (%j, %x, …).
	Stdin, Stdout, Stderr string
	// RequeueOnLoss lets the job run again when its node is lost.
	RequeueOnLoss bool
	// Signature is the hash under which the job's history is kept; Features
	// is the model's description of it, opaque here.
	Signature string
	Features  []byte
	Comment   string
	// Deadline is when it should have ended, 0 for never. DeadlineIn is the same
	// counted from its submit, in a request only: coordinators make a Deadline
	// of it.
	Deadline   Time
	DeadlineIn time.Duration
	// Objective is what its GPU type is chosen for, "" for the cluster's way.
	// MaxPowerW bounds the predicted mean power of all its GPUs, MaxCostMilli
	// its predicted price in thousandths of the currency; 0 is no limit.
	Objective               Objective
	MaxPowerW, MaxCostMilli int64
	// Script is a batch script, packed by gzip, that runs in place of
	// Command[0], which then only says what it was called. Empty for none.
	Script []byte
	// Partition is the part of the cluster that it runs in. In a request "" is
	// the default one, and "a,b" the first of them that takes it; afterwards it is
	// one, or "" when there were no partitions.
	Partition string
	// Checkpoint is how it saves its state when it must make room; only jobs
	// with such a hook are preempted.
	Checkpoint Checkpoint
	// OrCPU lets a job that wants GPUs run on none of them, on the cores that it
	// asks for, where that serves its objective better or no GPU could ever
	// run it.
	OrCPU bool
	// Hold tells that it was submitted held.
	Hold bool
	// Begin is before when it does not start, 0 for none.
	Begin Time
	// Depends is what must happen to other jobs first, all of it or, with
	// DependAny, one of it. KillInvalidDepend cancels the job once that can never
	// be; else it waits for good.
	Depends                      []Dependency
	DependAny, KillInvalidDepend bool
	// Warning is the signal that it gets before its time limit.
	Warning Warning
	// Truncate empties its output files at each start. Otherwise they are
	// appended to.
	Truncate bool
	// Container is what it asks of what it runs in.
	Container Container
	// Nodes is on how many nodes the job runs at once, all of them or none; 0 is
	// one. What it asks for, GPUs, cores and memory, it gets on each. Tasks is
	// how many processes it has on each node; 0 is one.
	Nodes, Tasks int
	// Where is on which nodes it may run, nil for anywhere.
	Where *Where
	// Mail is whom to write to of it.
	Mail Mail
	// IdleOK is for how long on end its GPUs may stand idle before the idle
	// policy of its partition counts, as far as the partition allows; 0 asks for
	// nothing.
	IdleOK time.Duration
	// NoResize keeps what it holds of GPUs at what it was granted, whatever it uses.
	NoResize bool
	// Account is who is charged for it and QOS by which rules it waits; in a
	// request "" is the default of each. Nice is how far it steps back behind
	// others; below 0 it steps forward, which only administrators may ask for.
	Account, QOS string
	Nice         int32
	// Host is as the partition has it when the job enters, for what it does not ask for.
	Host HostTerms
	// Array makes the job one for each of many task numbers; nil is one job.
	Array *Array
	// GPURange is between how many GPUs it runs, as many as are chosen when it starts.
	GPURange GPURange
	// AllMem asks for all memory of a node, in a request only: coordinators make a
	// MemMiB of it.
	AllMem bool
	// Retry is how often it runs again after it failed.
	Retry Retry
	// BatchScaling is what it does with more GPUs, of a job of elastic size; "" is BatchFixed.
	BatchScaling BatchScaling
	// Study makes the tasks of an array the trials of a search, nil for none.
	Study *study.Study
	// Power is what it asks of the power and clock of its GPUs, which are then its own.
	Power GPUPower
	// Service makes the tasks of an array the replicas of a service, nil for none.
	Service *service.Service
	// NodeRange is between on how many nodes it runs, as many as are chosen when it starts.
	NodeRange NodeRange
	// Defer lets it wait for cheaper power as long as it is predicted to end within this
	// of its submission; its leader then sets Begin. 0 lets it wait for none.
	Defer time.Duration
	// InPlace has a job of a range of nodes get and give up nodes while it runs on, where
	// it would begin again otherwise: its program runs on each node and copes with that.
	InPlace bool
	// Program is the hash under which the history is kept of commands that differ from the
	// job's in numbers alone; "" for none.
	Program string
	// Numbers are those in which it differs from them, as model.EncodeNumbers writes them.
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
	// Estimated is when they were last made anew while the job waited, 0 for those
	// of its submit.
	Estimates []Estimate
	Estimated Time
	// MinGPUMemMiB is the least memory to reserve next time, raised after an
	// out-of-memory; NeedWhole demands a whole GPU next time.
	MinGPUMemMiB int64
	NeedWhole    bool
	// MinHostMemMiB is the least host memory to reserve on each node next time, where
	// none is declared.
	MinHostMemMiB int64
	Submitted     Time
	// Eligible is when it last began to wait.
	Eligible Time
	// Started and Ended are of the current or last attempt.
	Started, Ended Time
	// Queue is the GPU whose queue holds the job in state QUEUED, and EstStart
	// when the planner expects it to start there.
	Queue    GPUID
	EstStart Time
	// Cancel is who asked for its end, or nil.
	Cancel *CancelRequest
	// Hold is there while it is held, and Depends says how each of the spec's
	// dependencies stands; neither is changed in place.
	Hold    *Hold
	Depends []DependState
	// DependAt is when dependencies that are met begin to count, 0 is at once; of a replica
	// that ended soon after its start it is when it may start again.
	DependAt Time
	Attempts []Attempt
	// ArrayJobID is the array that it is a task of, which has the id of its first
	// task; 0 is none. ArrayTaskID is the task's number.
	ArrayJobID  JobID
	ArrayTaskID uint32
	// Fold is the ranks of several tasks that all wait, or ended, just alike, at
	// least two; nil for one task or job. ID and ArrayTaskID are the last one's.
	Fold []Span
	// OwnLimit is the time limit of a task that was given another than its array
	// has, 0 being none; nil for all else. Spec has it, too.
	OwnLimit *time.Duration
}

// CancelRequest records who wants a job ended.
type CancelRequest struct {
	At    Time
	By    UID
	Admin bool
	// Why is the reason of a study's rule that ended a trial, "" for all others.
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

// Clone returns a copy that may be changed in place: its attempts are copied,
// what they point to and the Spec are shared.
func (j *Job) Clone() *Job {
	c := *j
	c.Attempts = append([]Attempt(nil), j.Attempts...)
	return &c
}

// Attempt is one try to run a job. It has one terminal state and, unless it
// was lost, one Exit.
type Attempt struct {
	No     uint32
	Token  Token
	State  JobState
	Reason Reason
	// Berth is where it lies, BootID that node's boot; on several nodes the first.
	Berth  Berth
	BootID string
	// Gang is what it has on further nodes, nil when it has one.
	Gang *Gang
	// Port is where its processes find each other on the first node, or where a
	// replica of a service takes requests; 0 when there is but one process.
	Port uint16
	// Estimate is the one that placed it.
	Estimate Estimate
	// Placed is when the plan was committed; Why is the planner's reason for
	// this berth, and Overtook the reason for passing others in the queue.
	Placed, Started, Ended Time
	Why, Overtook          string
	Exit                   *Exit
	Usage                  Usage
	// Neighbours are jobs that shared a GPU with this attempt, in order of
	// meeting, at most MaxNeighbours.
	Neighbours []JobID
	// Preempt is there once it was asked to make room, nil before.
	Preempt *PreemptRequest
	// GPUMilli is how much of GPUs it was given in all, in thousandths of whole
	// ones; see ShareMilli. It is 0 without GPUs, and for attempts placed before
	// this was kept.
	GPUMilli int64
	// Marks are those of its time limit that were told of.
	Marks MailEvents
	// Idle is how far the idle policy has gone with it, nil before it began.
	Idle *IdleMark
	// Resize is how its shares were changed to what it uses, nil while they were not.
	Resize *ResizeMark
	// Progress is what it said last of how far it is, nil while it said nothing.
	Progress *Progress
	// Secret is what its credentials are made from, "" once it ended; see
	// Credential.
	Secret Secret
	// Power is what was done to the power and clock of its cards, of all its nodes, in
	// the order in which they told; nil where nothing was asked for.
	Power []CardPower
	// Search is what came of the search for its power cap, nil while nothing is known.
	Search *CapSearch
	// Serving is how a replica of a service stands, nil while it starts.
	Serving *Serving
	// Loan names the partition whose cards it has on loan, "" where they are those of its
	// job's own.
	Loan string
	// Changes are how nodes came and left while it ran, the newest MaxSizeChanges.
	Changes []SizeChange
}

// MaxNeighbours bounds Attempt.Neighbours.
const MaxNeighbours = 16

// Exit is how the first process of an attempt ended.
type Exit struct {
	// Code is 0–255; when Signal is not 0 it is 128+Signal, as shells say.
	Code, Signal int32
}

// LatestEnd is until when a job that starts now is reckoned with: its time
// limit, or else what nine in ten such predictions stay below, on the type of
// GPU where that is longest. Of whom nobody knows anything it is for ever.
func (j *Job) LatestEnd(now Time) Time {
	longest := j.Spec.TimeLimit
	if longest == 0 && j.Spec.Service != nil {
		return math.MaxInt64
	}
	if longest == 0 {
		for i := range j.Estimates {
			e := &j.Estimates[i]
			// The ninth decile of a guess is 3 times the middle, of a confident
			// prediction 1.5 times; see scheduler/rules/ends.go.
			longest = max(longest, min(e.Duration, MaxTimeDays*24*time.Hour)/1000*time.Duration(3000-3*min(1000, max(0, e.TimeSure()))/2))
		}
		longest = cmp.Or(longest, 3*min(j.Spec.Duration, MaxTimeDays*24*time.Hour))
	}
	if longest <= 0 || now > math.MaxInt64-Time(longest.Microseconds()) {
		return math.MaxInt64
	}
	return now.Add(longest)
}

// Secret is what the credentials of an attempt are made from. Coordinators alone
// have it; an attempt without one has no credentials. It prints as no more than
// that it is there.
type Secret string

const (
	// SecretBytes is how long a Secret is.
	SecretBytes = 16
	// MaxCredential bounds the bytes of a credential.
	MaxCredential = 128
	// CredentialVar is the variable that names a job the file with its credential.
	CredentialVar = "BERTH_CREDENTIAL" // #nosec G101 -- a name, and no secret
	// CredentialKey is the metadata in which requests carry it.
	CredentialKey = "berth-credential" // #nosec G101 -- a name, and no secret
)

// String implements fmt.Stringer and says nothing of the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "secret"
}

// GoString implements fmt.GoStringer as String does.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// Credential is what the attempt of j shows on a node to be believed there: bound
// to job, attempt, owner and node. It is "" of an attempt that has no secret.
func (a *Attempt) Credential(j *Job, node NodeID) string {
	if a.Secret == "" {
		return ""
	}
	id := AttemptID{Job: j.ID, No: a.No}
	mac := hmac.New(sha256.New, []byte(a.Secret))
	fmt.Fprintf(mac, "berth credential 1\n%s\n%d\n%s", id, j.Owner.UID, node)
	return id.String() + "." + hex.EncodeToString(mac.Sum(nil))
}

// Holds reports whether credential is that of the live attempt of j for node,
// where its part must be live as well. It takes as long for any of the right
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

// CredentialOf returns of which attempt a credential says to be. Text of another
// form is an error, which does not repeat it.
func CredentialOf(credential string) (AttemptID, error) {
	name, mac, _ := strings.Cut(credential, ".")
	id, err := ParseAttemptID(name)
	if sum, herr := hex.DecodeString(mac); len(credential) > MaxCredential || err != nil || herr != nil || len(sum) != sha256.Size {
		return AttemptID{}, Errorf(CodeInvalid, "it is no credential of a job")
	}
	return id, nil
}
