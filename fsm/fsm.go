// Package fsm is Berth's replicated state machine: a function of the Raft log
// alone. It reads no clock, draws no lots and starts nothing; what the leader
// decides comes to it as commands, and what it refuses, it refuses on every
// replica alike.
package fsm

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	checkpointEvery  = 1000
	rememberedHashes = 64
	defaultRing      = 65536
)

// EntryVersion is the highest version of log entries that is read here. Each
// keeps more in samples than the one before it, and may hold the commands that
// NeedsVersion names. From 6 on an out-of-memory on a whole GPU leads to a
// larger one, from 8 on attempts keep their profiles, a job that took more GPU
// memory than it declared is not tried again, and one that others on its GPU
// ended is, jobs may need several nodes, cards have states and nodes a history, from 9 on jobs
// say whom to write to, and have an account, a quality of service and a nice
// value, from 10 on a job that is changed needs room where it is charged, drains
// may end by themselves, partitions say who may use them, and tasks of arrays may
// have time limits of their own.
const EntryVersion = 10

// chargeVersion is the one from which on a job that is changed needs room in the
// quotas of where it is charged then.
const chargeVersion = 10

// siteVersion is the one from which on drains may have an end, and partitions
// lists of who may use them.
const siteVersion = 10

// sessionVersion is the one from which on partitions limit how long sessions may
// stand idle.
const sessionVersion = 10

// accountVersion is the one from which on jobs are of accounts.
const accountVersion = 9

// importVersion is the one from which on runs of elsewhere may be learned from.
const importVersion = 9

// sharingVersion is the one from which on cards say whose jobs may share them.
const sharingVersion = 8

// orCPUVersion is the one from which on jobs that want GPUs may run on none.
const orCPUVersion = 6

// lifeVersion is the one from which on jobs may ask for a warning, for emptied
// output and for what they run in, and partitions say what networks there are.
const lifeVersion = 8

// tellVersion is the one from which on jobs may say whom to write to, and for how
// long their GPUs may stand idle.
const tellVersion = 9

// Options configures an FSM.
type Options struct {
	// OnDiverged is called, under the state's lock, when a checkpoint shows
	// that this replica's state differs from the leader's. It must not call
	// back into the FSM.
	OnDiverged func(index uint64, want, got []byte)
	// Version is written into snapshots, for people.
	Version string
	// ChangeRing is how many changes are held for watchers; 0 means 65536.
	ChangeRing int
}

// FSM implements raft.FSM. Raft calls Apply, Snapshot and Restore; everybody
// else reads, from any goroutine.
type FSM struct {
	opts Options

	mu     sync.RWMutex
	st     *State
	hashes []indexHash // of the last checkpoints, newest last
	ring   ring
	news   chan struct{} // closed and replaced at each entry
	ended  endedFeed
}

type indexHash struct {
	index uint64
	hash  []byte
}

// New returns an empty state machine.
func New(o Options) *FSM {
	if o.ChangeRing == 0 {
		o.ChangeRing = defaultRing
	}
	return &FSM{opts: o, st: newState(), ring: ring{cap: o.ChangeRing}, news: make(chan struct{})}
}

// CancelOutcome is what a cancel did.
type CancelOutcome uint8

// The outcomes of a cancel.
const (
	NotFound CancelOutcome = iota
	Cancelled
	Finished // it had ended before
)

// TokenInfo is what a spent join token was for.
type TokenInfo struct{ Role, ID string }

// Result is what became of one command. Err is a refusal, the same on every
// replica, and then nothing was changed.
type Result struct {
	Index    uint64
	Err      *cluster.Error
	Jobs     []cluster.JobID // submitted
	Existing bool            // by an earlier request with the same id
	Plan     *cluster.PlanResult
	Cancel   CancelOutcome
	// Released tells that the reported attempt is over and may be forgotten.
	Released bool
	// Absurd tells that the reported figures cannot be, so that nothing was
	// learned from them.
	Absurd bool
	Token  *TokenInfo
	// Webhook is the id of the webhook that was added.
	Webhook uint64
	// Lost and Requeued are the jobs that a fence ended, or made wait again.
	Lost, Requeued []cluster.JobID
	// Tasks is what became of the tasks of an array that were to change.
	Tasks TaskCounts
}

// NeedsVersion returns the least version of an entry that may hold cmd: older
// coordinators do not know it.
func NeedsVersion(cmd *logv1.Command) uint32 {
	switch k := cmd.Kind.(type) {
	case *logv1.Command_AddWebhook, *logv1.Command_RemoveWebhook, *logv1.Command_SettleNotices, *logv1.Command_MarkAttempt, *logv1.Command_IdleAttempt:
		return tellVersion
	case *logv1.Command_DrainGpu:
		return healthVersion
	case *logv1.Command_DrainNode:
		if k.DrainNode.GetUntilUs() != 0 {
			return siteVersion
		}
	case *logv1.Command_SetPartition:
		if len(k.SetPartition.GetPartition().GetAccess()) > 0 {
			return siteVersion
		}
		if k.SetPartition.GetPartition().GetSessionIdleUs() != 0 {
			return sessionVersion
		}
		if k.SetPartition.GetPartition().GetIdle() != "" {
			return tellVersion
		}
		if len(k.SetPartition.GetPartition().GetNetworks()) > 0 {
			return lifeVersion
		}
		return 5
	case *logv1.Command_SetReservation, *logv1.Command_RemoveReservation, *logv1.Command_UpdateJob:
		return whereVersion
	case *logv1.Command_RemovePartition:
		return 5
	case *logv1.Command_ExpireJobs:
		return 4
	case *logv1.Command_PreemptAttempt:
		return preemptVersion
	case *logv1.Command_SetStanding:
		return accountVersion
	case *logv1.Command_HoldJob, *logv1.Command_RequeueJob:
		return holdVersion
	case *logv1.Command_UndoGang:
		return gangVersion
	case *logv1.Command_ChangeTasks:
		if k.ChangeTasks.GetChange() == logv1.TaskChange_TASK_CHANGE_TIME_LIMIT {
			return limitVersion
		}
		return arrayVersion
	case *logv1.Command_SubmitJob:
		return submitNeeds(k.SubmitJob)
	case *logv1.Command_RegisterNode:
		if len(k.RegisterNode.GetNode().GetFeatures()) > 0 {
			return whereVersion
		}
		if unsound(k.RegisterNode.GetNode()) {
			return healthVersion
		}
		for _, g := range k.RegisterNode.GetNode().GetGpus() {
			if g.GetScope() != "" || g.GetCapReason() != "" {
				return sharingVersion
			}
		}
	case *logv1.Command_InstallWeights, *logv1.Command_RollbackWeights, *logv1.Command_PinWeights, *logv1.Command_FenceNode:
		return 2
	case *logv1.Command_InstallInterference:
		return 3
	case *logv1.Command_ImportRuns:
		return importVersion
	}
	return 1
}

// submitNeeds does so for a submit.
func submitNeeds(c *logv1.SubmitJob) uint32 {
	// Those who do not know these fields would store the jobs without.
	least := uint32(1)
	for _, j := range c.GetJobs() {
		s := j.GetSpec()
		switch {
		case s.GetWhere() != nil, s.GetMailEvents() != 0 || s.GetMailUser() != "" || s.GetIdleOkUs() != 0:
			return tellVersion
		case s.GetAccount() != "" || s.GetQos() != "" || s.GetNice() != 0:
			return accountVersion
		case s.GetWarning() != nil || s.GetTruncate() || s.GetContainer() != nil:
			return lifeVersion
		case s.GetNodes() > 1 || s.GetTasks() > 1:
			return gangVersion
		case s.GetHold() || s.GetBeginUs() != 0 || len(s.GetDepends()) > 0:
			least = max(least, holdVersion)
		case s.GetOrCpu():
			least = max(least, orCPUVersion)
		case s.GetCheckpointSignal() != "" || s.GetPartition() != "":
			least = max(least, preemptVersion)
		case s.GetDeadlineUs() != 0 || s.GetObjective() != "" || s.GetMaxPowerW() != 0 || s.GetMaxCostMilli() != 0:
			least = max(least, 4)
		}
	}
	return least
}

// EncodeEntry makes the log entry of commands that are proposed together, of
// a version that every coordinator reads.
func EncodeEntry(version uint32, term uint64, now cluster.Time, cmds []*logv1.Command) ([]byte, error) {
	data, err := proto.Marshal(&logv1.Entry{Version: version, Term: term, NowUs: int64(now), Commands: cmds})
	if err != nil {
		return nil, fmt.Errorf("encode log entry: %w", err)
	}
	return data, nil
}

// decode reads a log entry. An entry of a newer version, or with a command
// that this version does not know, is an error.
func decode(data []byte) (*logv1.Entry, error) {
	e := new(logv1.Entry)
	if err := proto.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("malformed: %w", err)
	}
	if e.Version < 1 || e.Version > EntryVersion {
		return nil, fmt.Errorf("version %d, this berth reads 1 to %d", e.Version, EntryVersion)
	}
	for i, c := range e.Commands {
		if c.Kind == nil {
			return nil, fmt.Errorf("command %d is of a kind that this berth does not know", i)
		}
	}
	return e, nil
}

// Apply implements raft.FSM. Raft calls it from one goroutine, in log order.
// The answer is a []Result, one a command.
func (f *FSM) Apply(l *raft.Log) any {
	e, err := decode(l.Data)
	if err != nil {
		// A replica that cannot read an entry must stop, not skip it.
		panic(fmt.Sprintf("fsm: log entry %d: %v", l.Index, err))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	results := f.st.applyEntry(l.Index, l.Term, e)
	for _, c := range e.Commands {
		if cp := c.GetCheckpoint(); cp != nil && e.Term == l.Term {
			f.compare(cp)
		}
	}
	if f.st.index/checkpointEvery != f.st.lastHash/checkpointEvery {
		f.st.lastHash = f.st.index
		f.hashes = append(f.hashes, indexHash{f.st.index, f.st.hashNow()})
		if len(f.hashes) > rememberedHashes {
			f.hashes = f.hashes[1:]
		}
	}
	f.st.hashSome()
	f.ring.add(f.st.changes, l.Index)
	f.st.changes = nil
	f.ended.took(f.st)
	f.wake()
	return results
}

// applyEntry applies the commands of one entry in order. An entry that a
// deposed leader proposed in another term is ignored: whoever proposed it was
// told that the outcome is unknown, and asks again.
func (s *State) applyEntry(index, term uint64, e *logv1.Entry) []Result {
	results := make([]Result, len(e.Commands))
	s.index, s.term = index, term
	if e.Term != term {
		for i := range results {
			results[i] = refuse(cluster.CodeUnavailable, "proposed in an older term; nothing was done; try again")
			results[i].Index = index
		}
		return results
	}
	if s.rules = e.Version; s.rules > 1 {
		s.format = max(s.format, s.rules)
	}
	s.now = max(s.now, cluster.Time(e.NowUs))
	for i, c := range e.Commands {
		results[i] = s.apply(index, c)
		s.settleDepends(index)
		if s.rules >= arrayVersion {
			// Not before others know what became of who is forgotten.
			s.forgetOldest()
		}
	}
	return results
}

// compare holds this replica's hash against the leader's, where it has one.
func (f *FSM) compare(c *logv1.Checkpoint) {
	for _, h := range f.hashes {
		if h.index == c.Index && !bytes.Equal(h.hash, c.Hash) && f.opts.OnDiverged != nil {
			f.opts.OnDiverged(c.Index, c.Hash, h.hash)
		}
	}
}

func (f *FSM) wake() {
	close(f.news)
	f.news = make(chan struct{})
}

// WaitChange returns when an entry after the given index is applied, or with
// ctx's error.
func (f *FSM) WaitChange(ctx context.Context, after uint64) error {
	for {
		f.mu.RLock()
		index, news := f.st.index, f.news
		f.mu.RUnlock()
		if index > after {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}
