package proposer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Raft commits entries; *raftnode.Node does.
type Raft interface {
	// Propose returns the index of an entry and the state machine's answer once it
	// is applied here.
	Propose(ctx context.Context, data []byte) (index uint64, answer any, err error)
}

// Proposer turns commands into Raft entries, many to one entry (group commit):
// while an entry is on its way to the disks of a majority, new commands collect for
// the next one. Its methods are safe for concurrent use, but Run must not run twice
// at once.
type Proposer struct {
	raft   Raft
	fsm    *fsm.FSM
	clock  func() time.Time
	may    func() error // whether anything may be proposed now
	wake   chan struct{}
	agreed atomic.Pointer[agreed] // of the entries it makes

	mu      sync.Mutex
	queue   queue
	leading bool // set while a leader's loop takes from queue
}

// proposal is commands that must be in one entry, in order.
type proposal struct {
	owner int64 // which user asked for it, see For
	cmds  []*logv1.Command
	size  int // in bytes
	cost  int // in Apply
	done  chan proposed
}

type proposed struct {
	results []fsm.Result
	err     error
}

// New returns a proposer that refuses everything until it runs. clock stamps the
// entries. may, called before each of them, returns a *cluster.Error while none may
// be proposed.
func New(r Raft, f *fsm.FSM, clock func() time.Time, may func() error) *Proposer {
	return &Proposer{raft: r, fsm: f, clock: clock, may: may, wake: make(chan struct{}, 1)}
}

// ErrNotLeader means that nothing was proposed.
var ErrNotLeader = &cluster.Error{Code: cluster.CodeUnavailable, Msg: "this coordinator does not lead now; nothing was done; try again"}

// ErrOldMembers is matched by refusals of commands that not every coordinator is
// known to understand. Nothing was proposed then.
var ErrOldMembers = errors.New("not every coordinator is known to read entries of that version")

// agreed is what the coordinators are known to read, and which keep it from being
// more; nil if that is not known.
type agreed struct {
	version uint32
	behind  *cluster.Error
}

// Version returns the version of the entries that it makes.
func (p *Proposer) Version() uint32 { return p.known().version }

func (p *Proposer) known() agreed {
	if a := p.agreed.Load(); a != nil {
		return *a
	}
	return agreed{}
}

// SetVersion sets the version that every coordinator is known to read. behind names
// those that read no higher one, in words for users whose requests need it, and
// says by its code whether to try again soon; nil if that is not known.
func (p *Proposer) SetVersion(v uint32, behind *cluster.Error) { p.agreed.Store(&agreed{v, behind}) }

// Reads returns an error that matches ErrOldMembers and names the coordinator that
// is too old, unless all read entries of a version; what names what needs it.
func (p *Proposer) Reads(version uint32, what string) error {
	a := p.known()
	if version <= a.version {
		return nil
	}
	if a.behind == nil {
		a.behind = cluster.Errorf(cluster.CodeUnavailable, "one is down or runs an older version")
	}
	return &cluster.Error{Code: a.behind.Code, Err: ErrOldMembers, Msg: fmt.Sprintf(
		"%s needs coordinators that read log entries of version %d, and %s; nothing was done; start or upgrade it, then try again", what, version, a.behind.Msg)}
}

// Do proposes cmds in one entry and waits for their results. Errors are
// *cluster.Error: CodeUnavailable if certainly nothing was done, CodeUnknown if it
// may have been. If ctx ends first the outcome is unknown too.
func (p *Proposer) Do(ctx context.Context, cmds ...*logv1.Command) ([]fsm.Result, error) {
	pr, err := p.proposal(ctx, cmds)
	if err != nil {
		return nil, err
	}
	if err := p.enqueue(pr); err != nil {
		return nil, err
	}
	return pr.wait(ctx)
}

// Each proposes commands that need not be in one entry, in order, and waits for all
// their results: no entry costs more than can be applied in a moment. An error is
// as Do's, of the first that failed; those after it may have been done.
func (p *Proposer) Each(ctx context.Context, cmds ...*logv1.Command) ([]fsm.Result, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	var all []*proposal
	for from, to, cost := 0, 0, 0; to <= len(cmds); to++ {
		if to < len(cmds) {
			c := p.fsm.Cost(cmds[to])
			if cost += c; cost <= fsm.EntryCost || to == from {
				continue
			}
			cost = c
		}
		pr, err := p.proposal(ctx, cmds[from:to])
		if err != nil {
			return nil, err
		}
		all, from = append(all, pr), to
	}
	var results []fsm.Result
	for i, pr := range all {
		if err := p.enqueue(pr); err != nil {
			return nil, outcomeAfter(err, i)
		}
	}
	for _, pr := range all {
		rs, err := pr.wait(ctx)
		if err != nil {
			return nil, err
		}
		results = append(results, rs...)
	}
	return results, nil
}

// outcomeAfter returns the error of a proposal that others preceded: something may
// have been done.
func outcomeAfter(err error, before int) error {
	if e, ok := errors.AsType[*cluster.Error](err); ok && before > 0 {
		return &cluster.Error{Code: cluster.CodeUnknown, Msg: "some of it may have been done: ask again; of the rest: " + e.Msg, Err: e}
	}
	return err
}

func (p *Proposer) proposal(ctx context.Context, cmds []*logv1.Command) (*proposal, error) {
	pr := &proposal{owner: ownerOf(ctx), cmds: cmds, done: make(chan proposed, 1)}
	for _, c := range cmds {
		pr.size += proto.Size(c)
		pr.cost += p.fsm.Cost(c)
		if err := p.Reads(command.Needs(c)); err != nil {
			return nil, err
		}
	}
	if pr.size > maxCallBytes {
		return nil, cluster.Errorf(cluster.CodeInvalid, "the request is %d bytes in the log, at most %d are allowed; send it in parts", pr.size, maxCallBytes)
	}
	return pr, nil
}

// wait returns the outcome of a queued proposal.
func (pr *proposal) wait(ctx context.Context) ([]fsm.Result, error) {
	select {
	case r := <-pr.done:
		return r.results, r.err
	case <-ctx.Done():
		return nil, &cluster.Error{Code: cluster.CodeUnknown, Msg: "gave up waiting; it may still be done: ask again with the same request id", Err: ctx.Err()}
	}
}

func (p *Proposer) enqueue(pr *proposal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leading {
		return ErrNotLeader
	}
	if err := p.queue.add(pr); err != nil {
		return err
	}
	wait.Poke(p.wake) // it was woken and has not checked yet
	return nil
}

// One proposes a single command and folds its result's error in.
func (p *Proposer) One(ctx context.Context, cmd *logv1.Command) (fsm.Result, error) {
	rs, err := p.Do(ctx, cmd)
	if err != nil {
		return fsm.Result{}, err
	}
	if rs[0].Err != nil {
		return rs[0], rs[0].Err
	}
	return rs[0], nil
}

// Run proposes what collects until ctx ends. It runs on the leader: term is the
// term in which it leads, and the state machine ignores entries of another.
func (p *Proposer) Run(ctx context.Context, term uint64) error {
	p.mu.Lock()
	p.leading = true
	p.mu.Unlock()
	defer p.stop()
	next := p.fsm.NextJobID()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.wake:
		}
		for {
			batch := p.take()
			if len(batch) == 0 {
				break
			}
			next = p.commit(ctx, term, next, batch)
		}
	}
}

// stop refuses what still waits: none of it was proposed.
func (p *Proposer) stop() {
	p.mu.Lock()
	waiting := p.queue.all()
	p.queue, p.leading = queue{}, false
	p.mu.Unlock()
	for _, pr := range waiting {
		pr.done <- proposed{err: ErrNotLeader}
	}
}

func (p *Proposer) take() []*proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.take()
}

// commit proposes one entry and hands each caller its results. Job ids are
// stamped here, in the order in which entries are proposed, so that they rise
// in the log.
func (p *Proposer) commit(ctx context.Context, term uint64, next cluster.JobID, batch []*proposal) cluster.JobID {
	if err := p.may(); err != nil {
		for _, pr := range batch {
			pr.done <- proposed{err: err}
		}
		return next
	}
	cmds, after := stamp(next, batch)
	data, err := fsm.EncodeEntry(p.Version(), term, cluster.TimeOf(p.clock()), cmds)
	if err != nil && len(batch) > 1 {
		for _, pr := range batch { // what cannot be written fails alone
			next = p.commit(ctx, term, next, []*proposal{pr})
		}
		return next
	}
	if err != nil {
		after, err = next, cluster.Errorf(cluster.CodeInternal, "this cannot be written to the log, and nothing was done: %v", err)
	}
	var answer any
	if err == nil {
		// The callers wait with their own deadlines; the entry is not taken
		// back when one of them goes away.
		_, answer, err = p.raft.Propose(context.WithoutCancel(ctx), data)
	}
	results, ok := answer.([]fsm.Result)
	if err == nil && (!ok || len(results) != len(cmds)) {
		err = cluster.Errorf(cluster.CodeInternal, "state machine answered %T for %d commands", answer, len(cmds))
	}
	if err != nil {
		err = outcomeError(err)
	}
	at := 0
	for _, pr := range batch {
		if err != nil {
			pr.done <- proposed{err: err}
			continue
		}
		pr.done <- proposed{results: results[at : at+len(pr.cmds) : at+len(pr.cmds)]}
		at += len(pr.cmds)
	}
	return after
}

// stamp returns the commands of a batch, with the ids of the jobs that they create,
// and the id after those.
func stamp(next cluster.JobID, batch []*proposal) ([]*logv1.Command, cluster.JobID) {
	var cmds []*logv1.Command
	for _, pr := range batch {
		for _, c := range pr.cmds {
			if s := c.GetSubmitJob(); s != nil {
				s.FirstJob = uint64(next)
				for _, j := range s.Jobs {
					next += cluster.JobID(conv.JobsOf(j))
				}
			}
		}
		cmds = append(cmds, pr.cmds...)
	}
	return cmds, next
}

// outcomeError converts Raft's error into one for users.
func outcomeError(err error) error {
	if _, ok := errors.AsType[*cluster.Error](err); ok {
		return err
	}
	switch raftnode.Classify(err) {
	case raftnode.Refused:
		return &cluster.Error{Code: cluster.CodeUnavailable, Msg: ErrNotLeader.Msg, Err: err}
	default:
		return &cluster.Error{Code: cluster.CodeUnknown, Msg: "leadership changed before the answer came; it may have been done: ask again with the same request id", Err: err}
	}
}
