package nodes

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/sharing"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// setSharing switches sharing off somewhere, or on again. It takes effect in the
// ledger, which decides what fits, so earlier plans that put a job next to another
// are rejected. Jobs that already share go on. Repeating it changes nothing.
func (f *Fleet) setSharing(c *logv1.SetSharing) command.Result {
	o := conv.SharingOffFromLog(c.Place)
	if err := o.Check(); err != nil {
		return command.Refuse(cluster.CodeInvalid, "%v", err)
	}
	old := f.unshared.Get(o.Key())
	switch {
	case !c.Off:
		f.ShareAgain(o.Key())
		return command.Result{}
	case old != nil && old.Reason == o.Reason:
		return command.Result{}
	case o.Node != "" && f.nodes.Get(o.Node) == nil:
		return command.Refuse(cluster.CodeNotFound, "node %q is not known", o.Node)
	case o.Partition != "" && f.parts.Get(o.Partition) == nil:
		return command.Refuse(cluster.CodeNotFound, "partition %q is not known", o.Partition)
	case o.GPU != "" && f.gpuNode[o.GPU] == "":
		return command.Refuse(cluster.CodeNotFound, "GPU %q is not known", o.GPU)
	case old == nil && len(f.unshared) >= sharing.MaxOff:
		return command.Refuse(cluster.CodeExhausted, "sharing is off in %d places, at most %d are allowed; switch it on where it may be, or off on nodes or partitions", len(f.unshared), sharing.MaxOff)
	}
	o.At = f.rest.At().Now
	f.putSharing(o)
	f.MarkShared()
	return command.Result{}
}

func (f *rules) putSharing(o *sharing.Off) {
	f.unshared = f.unshared.With(o)
	f.digests.unshared.Touch(o.Key())
}

// ShareAgain removes a switch, which need not exist.
func (f *Fleet) ShareAgain(key string) {
	if f.unshared.Get(key) == nil {
		return
	}
	f.unshared = f.unshared.Without(key)
	f.digests.unshared.Touch(key)
	f.MarkShared()
}

// MarkShared updates the GPUs from the switches and partitions.
func (f *Fleet) MarkShared() {
	for _, id := range f.nodes.Keys() {
		if n := f.nodes.Get(id); f.unshared.Mark(n, f.parts.Rows()) != n {
			f.Put(n)
		}
	}
}

// PutReservation adds a reservation, or replaces the one with its name.
func (f *rules) PutReservation(r *dispatch.Reservation) {
	out := make(dispatch.Reservations, 0, len(f.reserved)+1)
	placed := false
	for _, o := range f.reserved {
		if !placed && o.Name >= r.Name {
			out, placed = append(out, r), true
		}
		if o.Name != r.Name {
			out = append(out, o)
		}
	}
	if !placed {
		out = append(out, r)
	}
	f.reserved = out
	f.digests.reserved.Touch(r.Name)
}

// DropReservation removes a reservation.
func (f *rules) DropReservation(name string) {
	out := make(dispatch.Reservations, 0, len(f.reserved))
	for _, o := range f.reserved {
		if o.Name != name {
			out = append(out, o)
		}
	}
	f.reserved = out
	f.digests.reserved.Touch(name)
}

// Partitions returns the partitions by name; none if the cluster is undivided.
func (f *rules) Partitions() []*cluster.Partition {
	if f.parts.Len() == 0 {
		return nil
	}
	return f.parts.List()
}

// PutPartition adds a partition, or replaces the one with its name.
func (f *rules) PutPartition(p *cluster.Partition) {
	f.parts.Put(p.Name, p)
}
