// Package recut has agents cut GPUs in MIG mode anew for waiting jobs, as package mig plans it.
//
// What goes is drained first, in the log, so that nothing is placed there any more, and
// resumed when the node has registered what it has then. If a leader ends in between, the next
// one resumes it; an agent destroys no instance on which something runs.
package recut

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/scheduler/mig"
	"github.com/berth-scheduler/berth/scheduler/say"
)

const (
	every   = time.Second
	maxCuts = 16 // begun at a time
	share   = 20 // a look takes at most one part in so many of the time
	// patience is how long an agent may take, pause how long a GPU is left alone after a
	// cut, and longPause after one that failed.
	patience  = time.Minute
	pause     = 3 * time.Second
	longPause = 10 * time.Minute
	// holdFor is how long a job is held back at most from an instance that is larger
	// than it needs.
	holdFor = 20 * time.Second
	// reason begins the reason of the drains.
	reason = "cut anew for job "
)

// Needs is what a Recutter depends on. All fields are required.
type Needs struct {
	FSM      *fsm.FSM
	Proposer *proposer.Proposer
	Clock    func() time.Time
	Log      *slog.Logger
	// Cards returns the GPUs that can be cut anew, as their agents last described them.
	Cards func() []mig.Card
	// Card returns the card of an instance, false if it is not one that can be cut anew.
	Card func(cluster.NodeID, cluster.GPUID) (mig.Card, bool)
	// Cut asks an agent for a cut, and reports whether it is there.
	Cut func(context.Context, *mig.Cut) bool
	// Plan returns what a full pass would do with a snapshot, which it may modify.
	Plan func(*dispatch.Snapshot) dispatch.Plan
}

// Recutter cuts GPUs anew during a leader's term.
type Recutter struct {
	Needs
	not map[string]time.Time // by the GPU's UUID
	// index is the state's at the last look. The next comes after it changes or, for a
	// job or a GPU whose time comes then, at next, 0 for none; but not before rest, so
	// that looking takes little of the time.
	index      uint64
	next, rest cluster.Time

	mu sync.Mutex
	// pending is by the GPU's UUID. Only Run changes it.
	pending map[string]*pending
	held    map[cluster.JobID]held // see Awaits
}

// held is an instance that a job is held back from, and since when.
type held struct {
	gpu   mig.Card
	id    cluster.GPUID
	since time.Time
}

// pending is a cut that an agent was asked for.
type pending struct {
	cut   *mig.Cut
	since time.Time
}

// New returns a Recutter.
func New(n Needs) *Recutter {
	n.Log = n.Log.With("component", "recut")
	return &Recutter{Needs: n, pending: map[string]*pending{}, held: map[cluster.JobID]held{}}
}

// Awaits reports whether a job about to start on an instance waits instead until the GPU is cut
// for it, since it needs no more than a smaller one. It does so for holdFor at most, whatever
// happens to the cut. It may be called from any goroutine.
func (r *Recutter) Awaits(job cluster.JobID, node cluster.NodeID, gpu cluster.GPUID) bool {
	c, ok := r.Card(node, gpu)
	if !ok {
		return false
	}
	j, ok := r.FSM.Job(job)
	if !ok || !c.Wastes(gpu, j) {
		return false
	}
	now := r.Clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	h, was := r.held[job]
	if !was {
		maps.DeleteFunc(r.held, func(id cluster.JobID, _ held) bool {
			j, ok := r.FSM.Job(id)
			return !ok || !j.State.Waiting()
		})
		h = held{gpu: c, id: gpu, since: now}
		r.held[job] = h
	}
	return now.Sub(h.since) < holdFor
}

// Reason says for which cut a waiting job waits, and how long at most; it is zero for a job
// that waits for none. It may be called from any goroutine.
func (r *Recutter) Reason(job cluster.JobID) cluster.Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	words := ""
	for _, p := range r.pending {
		if slices.Contains(p.cut.For, job) {
			words = fmt.Sprintf("GPU %s of node %s is cut anew for it since %s", p.cut.Card.UUID, p.cut.Card.Node, clock(p.since))
		}
	}
	if h, ok := r.held[job]; ok && r.Clock().Sub(h.since) < holdFor {
		gpu := fmt.Sprintf("GPU %s of node %s", h.gpu.UUID, h.gpu.Node)
		where := "on " + gpu
		if words == "" {
			words, where = "waits since "+clock(h.since)+" for "+gpu+" to be cut anew", "there"
		}
		words += fmt.Sprintf("; from %s on it may have %s %s, which is larger than it needs", clock(h.since.Add(holdFor)), h.gpu.ProfileOf(h.id), where)
	}
	if words == "" {
		return cluster.Reason{}
	}
	return cluster.Reason{Code: cluster.ReasonCut, Detail: words}
}

func clock(t time.Time) string { return say.Clock(cluster.TimeOf(t)) }

// Run has GPUs cut anew until ctx ends.
func (r *Recutter) Run(ctx context.Context) error {
	r.not, r.index, r.next, r.rest = map[string]time.Time{}, 0, 0, 0
	defer r.forget()
	r.resumeLeft(ctx)
	for wait.Sleep(ctx, every) {
		cards := r.Cards()
		r.settle(ctx, cards)
		at, now := r.FSM.Index(), cluster.TimeOf(r.Clock())
		if len(cards) == 0 || now < r.rest || at == r.index && (r.next == 0 || now < r.next) {
			continue
		}
		began := time.Now()
		r.index, r.next = at, r.again(cards)
		r.look(ctx, slices.DeleteFunc(cards, r.leaves))
		r.rest = now.Add(share * time.Since(began))
	}
	return ctx.Err()
}

// forget drops what this term's agents were asked for.
func (r *Recutter) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.pending)
}

// again returns when the first of the GPUs that are left alone no longer is, 0 if none is.
func (r *Recutter) again(cards []mig.Card) (at cluster.Time) {
	for i := range cards {
		if r.leaves(cards[i]) {
			at = sooner(at, cluster.TimeOf(r.not[cards[i].UUID]))
		}
	}
	return at
}

// sooner returns the earlier of two times, of which 0 is none.
func sooner(a, b cluster.Time) cluster.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// leaves reports whether a GPU is left alone for now.
func (r *Recutter) leaves(c mig.Card) bool {
	return r.pending[c.UUID] != nil || r.Clock().Before(r.not[c.UUID])
}

// look begins the cuts that let waiting jobs start.
func (r *Recutter) look(ctx context.Context, cards []mig.Card) {
	if c := r.FSM.Counts(); c[cluster.JobPending]+c[cluster.JobQueued] == 0 {
		return
	}
	snap, begins := r.FSM.SchedulerSnapshotAt(cluster.TimeOf(r.Clock()))
	r.next = sooner(r.next, begins)
	view, idle := mig.Candidates(snap, cards)
	if view == nil {
		return
	}
	ledger := snap.Ledger.Clone()
	jobs := map[cluster.JobID]*cluster.Job{}
	for _, j := range snap.Waiting {
		jobs[j.ID] = j
	}
	wanted := mig.Wanted(r.Plan(view).Starts, idle, jobs)
	for range maxCuts {
		cut := mig.Plan(idle, ledger, wanted)
		if cut == nil {
			return
		}
		wanted = slices.DeleteFunc(wanted, func(j *cluster.Job) bool { return slices.Contains(cut.For, j.ID) })
		idle = slices.DeleteFunc(slices.Clone(idle), func(c mig.Card) bool { return c.UUID == cut.Card.UUID })
		r.begin(ctx, cut)
	}
}

// begin drains what goes, and asks the agent for the cut.
func (r *Recutter) begin(ctx context.Context, cut *mig.Cut) {
	for _, id := range cut.Drop {
		if !r.drain(ctx, cut.Card.Node, id, cut.String()) {
			r.end(ctx, cut, longPause)
			return
		}
	}
	free := true
	r.FSM.Read(func(st *fsm.State) {
		for _, id := range cut.Drop {
			u, ok := st.Ledger().GPU(id)
			free = free && ok && u.Shares == 0
		}
	})
	r.mu.Lock()
	r.pending[cut.Card.UUID] = &pending{cut: cut, since: r.Clock()}
	r.mu.Unlock()
	if !free || !r.Cut(ctx, cut) {
		r.end(ctx, cut, pause)
		return
	}
	r.Log.InfoContext(ctx, "a GPU is cut anew", "node", string(cut.Card.Node), "gpu", cut.Card.UUID, "drop", len(cut.Drop), "why", cut.String())
}

// settle ends the cuts whose outcome is known, or which took too long.
func (r *Recutter) settle(ctx context.Context, cards []mig.Card) {
	for uuid, p := range r.pending {
		i := slices.IndexFunc(cards, func(c mig.Card) bool { return c.UUID == uuid })
		switch {
		case i >= 0 && p.cut.Done(&cards[i]):
			r.end(ctx, p.cut, pause)
		case r.Clock().Sub(p.since) > patience:
			r.Log.WarnContext(ctx, "a GPU was not cut anew", "node", string(p.cut.Card.Node), "gpu", uuid)
			r.end(ctx, p.cut, longPause)
		}
	}
}

// end resumes what a cut drained, and leaves the GPU alone for a while.
func (r *Recutter) end(ctx context.Context, cut *mig.Cut, leave time.Duration) {
	r.mu.Lock()
	delete(r.pending, cut.Card.UUID)
	r.mu.Unlock()
	r.not[cut.Card.UUID] = r.Clock().Add(leave)
	r.resume(ctx, cut.Card.Node, func(o cluster.GPUOrder) bool { return slices.Contains(cut.Drop, o.GPU) })
}

// resumeLeft resumes what an earlier leader drained.
func (r *Recutter) resumeLeft(ctx context.Context) {
	for _, n := range r.FSM.Nodes() {
		r.resume(ctx, n.ID, func(cluster.GPUOrder) bool { return true })
	}
}

// resume resumes GPUs of a node that were drained here.
func (r *Recutter) resume(ctx context.Context, node cluster.NodeID, which func(cluster.GPUOrder) bool) {
	n, ok := r.FSM.Node(node)
	if !ok {
		return
	}
	for _, o := range n.Orders {
		if o.Drain && o.By == 0 && strings.HasPrefix(o.Reason, reason) && which(o) {
			r.drain(ctx, node, o.GPU, "")
		}
	}
}

// drain drains a GPU for a reason, or resumes it for none.
func (r *Recutter) drain(ctx context.Context, node cluster.NodeID, id cluster.GPUID, why string) bool {
	_, err := r.Proposer.One(ctx, &logv1.Command{Kind: &logv1.Command_DrainGpu{DrainGpu: &logv1.DrainGPU{
		Node: string(node), Gpu: string(id), Drain: why != "", Reason: why, Unasked: true,
	}}})
	if err != nil && ctx.Err() == nil {
		r.Log.WarnContext(ctx, "cannot drain or resume a GPU", "node", string(node), "gpu", string(id), "err", err)
	}
	return err == nil
}
