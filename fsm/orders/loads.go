package orders

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// noteLoads keeps what services had to do, or gives a revision what is known of one before
// it. Those that are gone or are no services are passed over, and so is what is no load.
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
