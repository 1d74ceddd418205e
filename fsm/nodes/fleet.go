// Package nodes is the part of the state machine for resources: nodes and their
// GPUs, the ledger of what is taken of them, and who may use which: partitions,
// reservations, and where sharing is switched off.
package nodes

import (
	"cmp"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/sharing"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// rules are the settings that administrators made for nodes.
type rules struct {
	parts    *table.Table[string, *cluster.Partition]
	reserved dispatch.Reservations // by name; replaced, never changed
	unshared sharing.Switches
	digests  digests
}

// Fleet holds the nodes and their settings. Values in it are immutable.
type Fleet struct {
	rules
	nodes *table.Table[cluster.NodeID, *cluster.Node]
	rest  Rest

	// The rest is derived from the above and from the jobs, and never stored.
	ledger  *dispatch.Ledger
	gpuJobs map[cluster.GPUID][]cluster.JobID // sorted; slices are replaced, never changed
	gpuNode map[cluster.GPUID]cluster.NodeID
}

type digests struct{ reserved, unshared *table.Digests[string] }

// Rest gives the fleet access to the rest of the state.
type Rest struct {
	// At returns the entry that is being applied.
	At func() command.Entry
	// Busy reports whether a node has jobs, and Owner returns the owner of a job.
	Busy  func(cluster.NodeID) bool
	Owner func(cluster.JobID) *cluster.Owner
	// Changed is called for each node that changed, Close for each GPU that no
	// longer takes jobs.
	Changed func(cluster.NodeID)
	Close   func(cluster.GPUID)
}

// New returns an empty fleet.
func New(h *table.Hash, rest Rest) *Fleet {
	f := &Fleet{
		nodes: table.New(h, table.Of[cluster.NodeID, *cluster.Node]{
			Kind: table.Node, Key: table.Text[cluster.NodeID], Compare: cmp.Compare[cluster.NodeID],
			Record: func(_ cluster.NodeID, n *cluster.Node) proto.Message { return conv.NodeToLog(n) },
		}),
		rest: rest, ledger: dispatch.NewLedger(nil),
		gpuJobs: map[cluster.GPUID][]cluster.JobID{}, gpuNode: map[cluster.GPUID]cluster.NodeID{},
	}
	f.parts = table.New(h, table.Of[string, *cluster.Partition]{
		Kind: table.Partition, Key: table.Text[string], Compare: strings.Compare,
		Record: func(_ string, p *cluster.Partition) proto.Message { return conv.PartitionToLog(p) },
	})
	f.digests = digests{
		reserved: table.NewDigests(h, table.Reservation, table.Text[string], func(name string) proto.Message {
			if r := f.reserved.Get(name); r != nil {
				return conv.ReservationToLog(r)
			}
			return nil
		}),
		unshared: table.NewDigests(h, table.Unshared, table.Text[string], func(key string) proto.Message {
			if o := f.unshared.Get(key); o != nil {
				return conv.SharingOffToLog(o)
			}
			return nil
		}),
	}
	return f
}

// Apply applies a command about nodes that does not concern jobs.
func (f *Fleet) Apply(cmd *logv1.Command) command.Result {
	switch c := cmd.Kind.(type) {
	case *logv1.Command_DrainNode:
		return f.drain(c.DrainNode)
	case *logv1.Command_DrainGpu:
		return f.drainGPU(c.DrainGpu)
	case *logv1.Command_SetSharing:
		return f.setSharing(c.SetSharing)
	}
	panic(fmt.Sprintf("nodes: %T is not for this machine", cmd.Kind))
}

// Register replaces a node by its agent's description, and returns what was known
// before, nil for a new node.
func (f *Fleet) Register(n *cluster.Node) (old *cluster.Node) {
	at := f.rest.At()
	old = f.nodes.Get(n.ID)
	n.State, n.Revision, n.Changed, n.Registered = cluster.NodeReady, at.Index, at.Now, at.Now
	n.Drain, n.DrainReason, n.DrainUntil, n.Fence, n.Orders, n.History, n.Power = false, "", 0, 0, nil, nil, cluster.Power{}
	if old != nil {
		n.Registered, n.Drain, n.DrainReason, n.DrainUntil, n.Fence = old.Registered, old.Drain, old.DrainReason, old.DrainUntil, old.Fence
		n.Orders, n.History = ordersFor(n, old.Orders), old.History
		for i := range old.GPUs {
			if n.GPU(old.GPUs[i].ID) == nil {
				f.rest.Close(old.GPUs[i].ID)
				delete(f.gpuNode, old.GPUs[i].ID)
			}
		}
		if !old.Power.Off() && n.BootID == old.BootID {
			n.Power = old.Power // it is on its way down
		}
	}
	noteRegistered(at, old, n)
	f.Put(n)
	f.closeQueues(n)
	return old
}

// Remove removes a node that holds nothing.
func (f *Fleet) Remove(n *cluster.Node) {
	f.EmptyQueues(n)
	for i := range n.GPUs {
		delete(f.gpuNode, n.GPUs[i].ID)
	}
	f.nodes.Drop(n.ID)
	f.ledger.RemoveNode(n.ID)
	f.ShareAgain((&sharing.Off{Node: n.ID}).Key())
	f.rest.Changed(n.ID)
}

// Put replaces a node by a changed copy.
func (f *Fleet) Put(n *cluster.Node) {
	n = f.unshared.Mark(n, f.parts.Rows())
	f.nodes.Put(n.ID, n)
	f.ledger.SetNode(n)
	for i := range n.GPUs {
		f.gpuNode[n.GPUs[i].ID] = n.ID
	}
	f.rest.Changed(n.ID)
}

// Node returns the node with an id, nil if there is none.
func (f *Fleet) Node(id cluster.NodeID) *cluster.Node { return f.nodes.Get(id) }

// List returns all nodes by id. The slice does not change; the caller must not
// modify it.
func (f *Fleet) List() []*cluster.Node { return f.nodes.Shared() }

// Nodes returns all nodes, unordered. The caller must not modify the map.
func (f *Fleet) Nodes() map[cluster.NodeID]*cluster.Node { return f.nodes.Rows() }

// Card returns a GPU of a node, nil if either is gone.
func (f *Fleet) Card(node cluster.NodeID, gpu cluster.GPUID) *cluster.GPU {
	if n := f.nodes.Get(node); n != nil {
		return n.GPU(gpu)
	}
	return nil
}

// NodeOf returns the node that has a GPU, "" for none.
func (f *Fleet) NodeOf(gpu cluster.GPUID) cluster.NodeID { return f.gpuNode[gpu] }

// On returns the jobs on a GPU, by id.
func (f *Fleet) On(gpu cluster.GPUID) []cluster.JobID { return f.gpuJobs[gpu] }

// Ledger returns the live ledger, which must not be kept.
func (f *Fleet) Ledger() *dispatch.Ledger { return f.ledger }

// Partition returns the partition with a name, nil if there is none.
func (f *rules) Partition(name string) *cluster.Partition { return f.parts.Get(name) }

// Reservations returns the reservations by name. The slice is replaced, never
// changed, when one of them changes.
func (f *rules) Reservations() dispatch.Reservations { return f.reserved }

// SharingOff returns where sharing is switched off, by place.
func (f *rules) SharingOff() sharing.Switches { return f.unshared }

// DropPartition removes a partition.
func (f *Fleet) DropPartition(name string) {
	f.parts.Drop(name)
	f.ShareAgain((&sharing.Off{Partition: name}).Key())
}

// View returns a copy for writing a snapshot; it does not change.
func (f *Fleet) View() *Fleet {
	return &Fleet{nodes: f.nodes.View(), rules: rules{parts: f.parts.View(), reserved: f.reserved, unshared: f.unshared}}
}

// EachPartition sends the records of partitions, which come before all others.
func (f *Fleet) EachPartition(w *table.Writer) {
	for _, p := range f.parts.List() {
		w.Send(&logv1.Record{Kind: &logv1.Record_Partition{Partition: conv.PartitionToLog(p)}})
	}
}

// Each sends all other records.
func (f *Fleet) Each(w *table.Writer) {
	for _, r := range f.reserved {
		w.Send(&logv1.Record{Kind: &logv1.Record_Reservation{Reservation: conv.ReservationToLog(r)}})
	}
	for _, o := range f.unshared {
		w.Send(&logv1.Record{Kind: &logv1.Record_SharingOff{SharingOff: conv.SharingOffToLog(o)}})
	}
	for _, n := range f.nodes.List() {
		w.Send(&logv1.Record{Kind: &logv1.Record_Node{Node: conv.NodeToLog(n)}})
	}
}

// Load restores a record that Each or EachPartition sent.
func (f *Fleet) Load(r *logv1.Record) error {
	switch m := r.Kind.(type) {
	case *logv1.Record_Partition:
		p, err := conv.PartitionFromLog(m.Partition)
		if err != nil {
			return err
		}
		f.PutPartition(p)
	case *logv1.Record_Reservation:
		r, err := conv.ReservationFromLog(m.Reservation)
		if err != nil {
			return err
		}
		f.PutReservation(r)
	case *logv1.Record_SharingOff:
		o := conv.SharingOffFromLog(m.SharingOff)
		if err := o.Check(); err != nil {
			return err
		}
		f.putSharing(o)
	case *logv1.Record_Node:
		n, err := conv.NodeFromLog(m.Node)
		if err != nil {
			return err
		}
		if f.nodes.Has(n.ID) {
			return fmt.Errorf("node %s appears twice", n.ID)
		}
		f.Put(n)
	}
	return nil
}
