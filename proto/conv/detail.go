package conv

import (
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// Bounds on what is kept of what an agent tells of a card for people.
const (
	maxDetailText = 128
	maxInstances  = 16
	maxStrays     = 16
)

// sellable is what the ledger may give away of a card: not what strangers
// hold. That may be less than is given already, which stays given: then the
// ledger gives nothing more, and the difference goes first when shares end.
func sellable(g *nodev1.GPU, headroomMiB int64) int64 {
	stray := min(max(0, g.StrayMib), g.MemMib)
	return cluster.Sellable(g.MemMib, g.ReservedMib+stray, headroomMiB)
}

// DetailFromHello returns what is kept of g's detail, nil when there is none:
// it is shown to people and bounded, whatever an agent says.
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
