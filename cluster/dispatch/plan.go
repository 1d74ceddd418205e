// Package dispatch defines the input and output of a scheduling pass: the snapshot,
// the ledger of resources taken, reservations, what was learned of sharing, and the
// plan. The scheduler and the state machine share its arithmetic.
package dispatch

import (
	"cmp"
	"fmt"
	"iter"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
)

// Plan is what the scheduler proposes against the state at BaseIndex. The state
// machine checks every part again when it applies the plan.
type Plan struct {
	BaseIndex uint64
	Starts    []Start
	Moves     []QueueMove
	// Unplaced says for each job left without a berth why; only the code is stored.
	Unplaced []Unplaced
	// Preempt lists attempts that the policy would end for others. They enter the
	// log as separate commands, and the starts of the plan do not count on them:
	// the room becomes free when an attempt has saved its state and ended.
	Preempt []Preemption
	// Trades are the GPUs that accounts exchanged. They are shown, and in no log.
	Trades []Trade
}

// Trade says that one account leaves GPUs of a type to another, for Price times as many
// of a type that is worth less to that one.
type Trade struct {
	Seller, Buyer, Sold, Paid string
	GPUs, Price               float64
}

// String says what was traded, at which price.
func (t *Trade) String() string {
	return fmt.Sprintf("%s leaves %.1f %s to %s for %.1f %s, at a price of %.2f", t.Seller, t.GPUs, t.Sold, t.Buyer, t.GPUs*t.Price, t.Paid, t.Price)
}

// Preemption proposes to end an attempt and requeue its job, so that another job
// can start in a later plan.
type Preemption struct {
	Job cluster.JobID
	// Attempt is the number of the live attempt; if it is another by then, the
	// proposal is stale.
	Attempt uint32
	// For is the job that is to get the room, 0 if there is none in particular.
	For cluster.JobID
	Why string
	// Loan means that the job returns borrowed GPUs; no preemption limit delays that.
	Loan bool
	// Gets are berths on further nodes, and Gives nodes of its own, that a job
	// resized in place gains or gives up instead of ending.
	Gets  []cluster.Berth
	Gives []cluster.NodeID
}

// Start places one job completely or not at all.
type Start struct {
	Job cluster.JobID
	// Attempt is the number the attempt will have; if the job has got another
	// meanwhile, the start is stale.
	Attempt uint32
	Berth   cluster.Berth
	// Rest are the berths of a multi-node job on further nodes, in rank order;
	// Berth is the first node's.
	Rest     []cluster.Berth
	Estimate cluster.Estimate
	Why      string
	// Overtook is the reason to start before jobs earlier in the queue of one of
	// its GPUs; required if there are such jobs.
	Overtook string
	// Port is where its processes find each other, Secret what its credentials are
	// derived from; see Attempt.
	Port   uint16
	Secret cluster.Secret
	// Loan names the partition that lends the GPUs, "" if they belong to the job's
	// own.
	Loan string
}

// QueueMove puts a waiting job into the queue of a GPU, or takes it out if GPU is
// empty. The queue of a GPU is ordered by Rank, then by job id.
type QueueMove struct {
	Job      cluster.JobID
	GPU      cluster.GPUID
	Rank     int64
	EstStart cluster.Time
	Reason   cluster.ReasonCode
	// Nodes are those of cluster.Job.Promised, for a job in no queue.
	Nodes []cluster.NodeID
}

// Unplaced is a job that the plan leaves waiting, with the reason in numbers.
type Unplaced struct {
	Job    cluster.JobID
	Reason cluster.Reason
}

// Rejection is a part of a plan that no longer fitted when it was applied.
type Rejection struct {
	Job    cluster.JobID
	Reason cluster.Reason
}

// Result is what the state machine did with a plan.
type Result struct {
	Started  []cluster.AttemptID
	Moved    int
	Rejected []Rejection
}

// Waiter is a place in the queue of a GPU.
type Waiter struct {
	Job  cluster.JobID
	Rank int64
}

// Compare orders the waiters of a queue: by rank, then by job.
func (w Waiter) Compare(o Waiter) int {
	return cmp.Or(cmp.Compare(w.Rank, o.Rank), cmp.Compare(w.Job, o.Job))
}

// Snapshot is an immutable view of the state at Index for the scheduler.
type Snapshot struct {
	Index uint64
	Now   cluster.Time
	// Nodes are sorted by id.
	Nodes []*cluster.Node
	// Ledger is the scheduler's own copy.
	Ledger *Ledger
	// Partitions are those of the cluster, by name, for a planner that handles them
	// in turn; a policy sees only its own partition's part and does not use this.
	Partitions []*cluster.Partition
	// Reservations are those that have not ended, by name.
	Reservations Reservations
	// Waiting are the jobs in states PENDING and QUEUED, Running those with a
	// live attempt; both sorted by id.
	Waiting, Running []*cluster.Job
	// Queues holds the GPU queues that are not empty, in order.
	Queues map[cluster.GPUID][]Waiter
	// More maps a waiting array task to how many others like it are not listed.
	More map[cluster.JobID]int
	// Interference is what is known of co-located jobs, nil for nothing.
	Interference *Interference
	// Terms hold what some policies know of a job besides its spec; a job without
	// an entry has none. They are not part of the replicated state.
	Terms map[cluster.JobID]Terms
	// Shares maps a job of elastic size with a deadline to the fewest of its units,
	// see cluster.Spec.Sizes, with which it should start, or may continue.
	Shares map[cluster.JobID]int
	// Images maps each image that waiting jobs ask for to the nodes that hold it,
	// sorted; an image held nowhere has no entry. It is not part of the replicated
	// state.
	Images map[string][]cluster.NodeID
	// Service is each user's decayed use in GPU-seconds of the site's reference
	// GPU, for fair shares. nil means that it was not recorded.
	Service map[cluster.UID]int64
	// Standing is how accounts and qualities of service rank jobs, nil for not at
	// all. Limits checks jobs against quotas, nil if there are none; a pass works
	// on a copy.
	Standing *accounting.Standing
	Limits   *accounting.Limiter
}

// Terms are conditions of one job that only some policies consider.
type Terms struct {
	// Deadline is when it should have ended; 0 means never.
	Deadline cluster.Time
	// WeightMilli is its claim relative to others, in thousandths; 0 means
	// 1000.
	WeightMilli int64
	// Preemptible jobs have a checkpoint hook: they can be ended and later resume
	// where they were.
	Preemptible bool
	// Shrinks means that a job with a deadline may restart with fewer of its units,
	// as many as the deadline needs.
	Shrinks bool
	// Stages is how long an iteration spends on the GPUs, on cores and disk, and on
	// the network, as a profiler measured it, and Iteration how long it takes
	// alone, which is less if stages of one overlap those of the next. Zero is
	// unknown.
	Stages    [3]time.Duration
	Iteration time.Duration
}

// Berths yields all berths of the start, keyed by rank.
func (s *Start) Berths() iter.Seq2[int, *cluster.Berth] {
	return func(yield func(int, *cluster.Berth) bool) {
		if !yield(0, &s.Berth) {
			return
		}
		for i := range s.Rest {
			if !yield(i+1, &s.Rest[i]) {
				return
			}
		}
	}
}

// Began returns a job as the state will have it once the start is committed.
func (s *Start) Began(j *cluster.Job, now cluster.Time) *cluster.Job {
	run := j.Clone()
	run.State, run.Queue = cluster.JobStarting, ""
	a := cluster.Attempt{No: s.Attempt, State: cluster.JobStarting, Berth: s.Berth, Estimate: s.Estimate, Placed: now, Loan: s.Loan}
	if len(s.Rest) > 0 {
		a.Gang = &cluster.Gang{Rest: s.Rest}
		for range s.Berths() {
			a.Gang.Parts = append(a.Gang.Parts, cluster.Part{State: cluster.JobStarting})
		}
	}
	run.Attempts = append(run.Attempts, a)
	return run
}

// On reports whether the start uses a node.
func (s *Start) On(id cluster.NodeID) bool {
	for _, b := range s.Berths() {
		if b.Node == id {
			return true
		}
	}
	return false
}

// AllGPUs returns the shares on all nodes, those of the first one first.
func (s *Start) AllGPUs() []cluster.GPUShare {
	if len(s.Rest) == 0 {
		return s.Berth.GPUs
	}
	var out []cluster.GPUShare
	for _, b := range s.Berths() {
		out = append(out, b.GPUs...)
	}
	return out
}
