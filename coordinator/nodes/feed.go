package nodes

import (
	"context"
	"sync"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/fsm"
)

// feed reads the state machine's changes once and distributes them: to the planner,
// the sessions of nodes, and watches.
type feed struct {
	fsm     *fsm.FSM
	changed func([]fsm.Change)
	missed  func()

	mu    sync.Mutex
	nodes map[cluster.NodeID]map[chan struct{}]struct{}
}

func newFeed(d Needs) *feed {
	return &feed{fsm: d.FSM, changed: d.Changed, missed: d.Missed, nodes: map[cluster.NodeID]map[chan struct{}]struct{}{}}
}

// run distributes changes until ctx ends.
func (f *feed) run(ctx context.Context) error {
	after := f.fsm.Index()
	for {
		if err := f.fsm.WaitChange(ctx, after); err != nil {
			return err
		}
		cs, upTo, ok := f.fsm.Changes(after)
		after = upTo
		if !ok {
			f.wakeAll()
			f.missed()
			continue
		}
		f.changed(cs)
		f.wake(cs)
	}
}

// subscribe returns a channel that holds a token when something of node may have
// changed, and a function to end the subscription.
func (f *feed) subscribe(node cluster.NodeID) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nodes[node] == nil {
		f.nodes[node] = map[chan struct{}]struct{}{}
	}
	f.nodes[node][ch] = struct{}{}
	return ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.nodes[node], ch)
		if len(f.nodes[node]) == 0 {
			delete(f.nodes, node)
		}
	}
}

func (f *feed) wake(cs []fsm.Change) {
	touched := map[cluster.NodeID]struct{}{}
	for _, c := range cs {
		if c.Node != "" {
			touched[c.Node] = struct{}{}
		}
		if c.Job == 0 {
			continue
		}
		if j, ok := f.fsm.Job(c.Job); ok {
			if a := j.Last(); a != nil {
				for _, b := range a.Berths() {
					touched[b.Node] = struct{}{}
				}
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range touched {
		for ch := range f.nodes[n] {
			wait.Poke(ch)
		}
	}
}

func (f *feed) wakeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, chs := range f.nodes {
		for ch := range chs {
			wait.Poke(ch)
		}
	}
}
