package coordtest

import (
	"sync"

	"github.com/hashicorp/raft"
)

// gate sits between Raft and a state machine: entries pass while mu is free.
type gate struct {
	mu sync.Mutex
	raft.FSM
}

func newGate() *gate { return &gate{} }

// before puts the gate in front of a state machine.
func (g *gate) before(f raft.FSM) raft.FSM {
	g.FSM = f
	return g
}

// Apply implements raft.FSM.
func (g *gate) Apply(l *raft.Log) any {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.FSM.Apply(l)
}
