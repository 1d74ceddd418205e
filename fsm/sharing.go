package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// SharingOff returns where sharing is switched off, by place.
func (f *FSM) SharingOff() cluster.SharingSwitches {
	return read(f, func(s *State) cluster.SharingSwitches { return s.unshared })
}

// setSharing switches sharing off somewhere, or on again. The ledger, which says
// what fits, knows of it from then on: plans that were made before and that put a
// job beside another are rejected. What lies beside each other goes on. Doing it
// again changes nothing.
func (s *State) setSharing(c *logv1.SetSharing) Result {
	o := conv.SharingOffFromLog(c.Place)
	if err := o.Check(); err != nil {
		return refuse(cluster.CodeInvalid, "%v", err)
	}
	old := s.unshared.Get(o.Key())
	switch {
	case !c.Off:
		s.shareAgain(o.Key())
		return Result{}
	case old != nil && old.Reason == o.Reason:
		return Result{}
	case o.Node != "" && s.nodes[o.Node] == nil:
		return refuse(cluster.CodeNotFound, "node %q is not known", o.Node)
	case o.Partition != "" && s.parts[o.Partition] == nil:
		return refuse(cluster.CodeNotFound, "partition %q is not known", o.Partition)
	case o.GPU != "" && s.gpuNode[o.GPU] == "":
		return refuse(cluster.CodeNotFound, "GPU %q is not known", o.GPU)
	case old == nil && len(s.unshared) >= cluster.MaxSharingOff:
		return refuse(cluster.CodeExhausted, "sharing is off in %d places, at most %d are allowed; switch it on where it may be, or off on nodes or partitions", len(s.unshared), cluster.MaxSharingOff)
	}
	o.At = s.now
	s.putSharing(o)
	s.markShared()
	return Result{}
}

func (s *State) putSharing(o *cluster.SharingOff) {
	s.unshared = s.unshared.With(o)
	s.hash.rest.touch(entity{kindUnshared, o.Key()})
}

// shareAgain forgets a switch, which need not be there.
func (s *State) shareAgain(key string) {
	if s.unshared.Get(key) == nil {
		return
	}
	s.unshared = s.unshared.Without(key)
	s.hash.rest.touch(entity{kindUnshared, key})
	s.markShared()
}

// markShared has the cards say what the switches and partitions make of them.
func (s *State) markShared() {
	for _, id := range sortedKeys(s.nodes) {
		if n := s.nodes[id]; s.unshared.Mark(n, s.parts) != n {
			s.putNode(n)
		}
	}
}

func (s *State) loadSharing(m *logv1.SharingOff) error {
	o := conv.SharingOffFromLog(m)
	if err := o.Check(); err != nil {
		return err
	}
	s.putSharing(o)
	return nil
}
