package orders

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// noteLoads records the load of services, or gives a revision the history of an
// earlier one. Jobs that are gone or are not services are ignored, and so are
// invalid loads.
func (d *Desk) noteLoads(c *logv1.NoteLoads) command.Result {
	for _, n := range c.GetServices() {
		a := d.roll.Arrays[cluster.JobID(n.GetArray())]
		if a == nil || a.Spec.Service == nil {
			continue
		}
		if from := d.roll.Arrays[cluster.JobID(n.GetFrom())]; n.GetFrom() != 0 {
			if from != nil && a.Load == nil {
				a.Load = from.Load
			}
		} else {
			a.Load = a.Load.With(service.Noted{Slot: n.GetSlot(), Load: n.GetLoad(), Each: n.GetEach()})
		}
		d.roll.Digests.Arrays.Touch(a.ID)
	}
	return command.Result{}
}
