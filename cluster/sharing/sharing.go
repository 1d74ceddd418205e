// Package sharing holds the switches by which administrators turn GPU sharing off.
// It is pure: no clock, no I/O.
package sharing

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// Off is a switch that is off: on the GPUs that it covers no new job is placed next
// to another. It names one of GPU, Node and Partition, or none for all GPUs. Values
// are immutable.
type Off struct {
	GPU       cluster.GPUID
	Node      cluster.NodeID
	Partition string
	Reason    string
	By        cluster.UID
	At        cluster.Time
}

// MaxOff is the maximum number of switches.
const MaxOff = 1024

// Check returns an error unless o names one place or none.
func (o *Off) Check() error {
	n := 0
	for _, s := range []string{string(o.GPU), string(o.Node), o.Partition} {
		if s != "" {
			n++
		}
		if len(s) > cluster.MaxNameLen*4 {
			return cluster.Errorf(cluster.CodeInvalid, "a name of %d bytes", len(s))
		}
	}
	if n > 1 {
		return cluster.Errorf(cluster.CodeInvalid, "sharing: name only one of a GPU, a node, a partition and the cluster")
	}
	return nil
}

// Key identifies the place.
func (o *Off) Key() string {
	switch {
	case o.GPU != "":
		return "gpu/" + string(o.GPU)
	case o.Node != "":
		return "node/" + string(o.Node)
	case o.Partition != "":
		return "partition/" + o.Partition
	}
	return "cluster"
}

// Words says where sharing is off, and why.
func (o *Off) Words() string {
	where := "in the whole cluster"
	switch {
	case o.GPU != "":
		where = "on this GPU"
	case o.Node != "":
		where = "on node " + string(o.Node)
	case o.Partition != "":
		where = "in partition " + o.Partition
	}
	if o.Reason != "" {
		where += ": " + o.Reason
	}
	return "sharing is off " + where
}

// Switches are the places where sharing is off, by Key.
type Switches []*Off

// With returns the switches with o added, replacing one with the same key. The
// receiver is not changed.
func (w Switches) With(o *Off) Switches {
	at, found := w.at(o.Key())
	out := slices.Clone(w)
	if found {
		out[at] = o
		return out
	}
	return slices.Insert(out, at, o)
}

// Without returns the switches without the one of a key. The receiver is not
// changed.
func (w Switches) Without(key string) Switches {
	at, found := w.at(key)
	if !found {
		return w
	}
	return slices.Delete(slices.Clone(w), at, at+1)
}

// Get returns the switch with a key, or nil.
func (w Switches) Get(key string) *Off {
	if at, found := w.at(key); found {
		return w[at]
	}
	return nil
}

func (w Switches) at(key string) (int, bool) {
	return slices.BinarySearchFunc(w, key, func(o *Off, key string) int {
		switch k := o.Key(); {
		case k < key:
			return -1
		case k > key:
			return 1
		}
		return 0
	})
}

// Mark returns n with each GPU's Unshared set from the switches, or n itself if
// that changes nothing. parts are the cluster's partitions.
func (w Switches) Mark(n *cluster.Node, parts map[string]*cluster.Partition) *cluster.Node {
	out := n
	for i := range n.GPUs {
		why := w.on(n, &n.GPUs[i], parts)
		if n.GPUs[i].Unshared == why {
			continue
		}
		if out == n {
			c := *n
			c.GPUs = slices.Clone(n.GPUs)
			out = &c
		}
		out.GPUs[i].Unshared = why
	}
	return out
}

func (w Switches) on(n *cluster.Node, g *cluster.GPU, parts map[string]*cluster.Partition) string {
	for _, o := range w {
		p := parts[o.Partition]
		switch {
		case o.GPU != "" && o.GPU != g.ID, o.Node != "" && o.Node != n.ID:
		case o.Partition != "" && (p == nil || !p.Nodes.Holds(n.ID) || !p.HasType(g.Type)):
		default:
			return o.Words()
		}
	}
	return ""
}
