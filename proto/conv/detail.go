package conv

import (
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// Bounds on the GPU details that agents report for display.
const (
	maxDetailText = 128
	maxInstances  = 16
	maxStrays     = 16
)

// sellable returns how much of a GPU the ledger may allocate: all except what
// foreign processes hold. That may be less than is already allocated, which stays
// so: then the ledger allocates nothing more, and the difference is settled as
// shares end.
func sellable(g *nodev1.GPU, headroomMiB int64) int64 {
	stray := min(max(0, g.StrayMib), g.MemMib)
	return cluster.Sellable(g.MemMib, g.ReservedMib+stray, headroomMiB)
}

// DetailFromHello returns g's detail as stored, nil if there is none: it is for
// display and bounded, whatever an agent reports.
func DetailFromHello(g *nodev1.GPU) *apiv1.GPUDetail {
	d := g.GetDetail()
	if d == nil {
		return nil
	}
	text := func(s string) string { return clip(s, maxDetailText) }
	out := &apiv1.GPUDetail{
		Name: text(d.Name), Driver: text(d.Driver), Cuda: text(d.Cuda), Compute: text(d.Compute), PowerLimitW: d.PowerLimitW,
		NvlinkGroup: d.NvlinkGroup, Mig: text(d.Mig), Persistence: text(d.Persistence), StrayMib: max(0, g.StrayMib), Pci: text(g.Pci), Numa: g.Numa,
	}
	for i, in := range d.Instances {
		if i == maxInstances {
			break
		}
		out.Instances = append(out.Instances, &apiv1.GPUInstance{
			Uuid: text(in.GetUuid()), Profile: text(in.GetProfile()), MemMib: in.GetMemMib(), Sms: in.GetSms(),
		})
	}
	for i, s := range d.Strays {
		if i == maxStrays {
			break
		}
		out.Strays = append(out.Strays, &apiv1.StrayProcess{
			Pid: s.GetPid(), User: text(s.GetUser()), Command: text(s.GetCommand()), MemMib: s.GetMemMib(),
		})
	}
	return out
}
