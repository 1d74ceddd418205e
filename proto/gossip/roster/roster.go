// Package roster keeps who is there by gossip, apart from memberlist's own list, whose
// nodes change under those that read them.
package roster

import (
	"bytes"
	"sync"

	"github.com/hashicorp/memberlist"
)

// Roster is the members that are alive, this one too, as memberlist's events tell of
// them. The zero value is ready; it is safe for concurrent use.
type Roster struct {
	mu    sync.Mutex
	nodes map[string]*memberlist.Node // never changed once they are here
}

// All returns the members in no order. They are not to be changed.
func (r *Roster) All() []*memberlist.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*memberlist.Node, 0, len(r.nodes))
	for _, n := range r.nodes {
		out = append(out, n)
	}
	return out
}

// NotifyJoin implements memberlist.EventDelegate.
func (r *Roster) NotifyJoin(n *memberlist.Node) {
	own := *n
	own.Addr, own.Meta = bytes.Clone(n.Addr), bytes.Clone(n.Meta)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes == nil {
		r.nodes = map[string]*memberlist.Node{}
	}
	r.nodes[n.Name] = &own
}

// NotifyUpdate implements memberlist.EventDelegate.
func (r *Roster) NotifyUpdate(n *memberlist.Node) { r.NotifyJoin(n) }

// NotifyLeave implements memberlist.EventDelegate.
func (r *Roster) NotifyLeave(n *memberlist.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, n.Name)
}
