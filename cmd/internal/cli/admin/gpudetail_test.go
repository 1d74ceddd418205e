package admin_test

import (
	"context"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// strangers serves a node with processes that were not started through Berth.
type strangers struct{ *clitest.Fake }

func (strangers) ListNodes(context.Context, *apiv1.ListNodesRequest) (*apiv1.ListNodesResponse, error) {
	card := func(i uint32, uuid string, d *apiv1.GPUDetail) *apiv1.GPU {
		return &apiv1.GPU{Uuid: uuid, Index: i, Type: "H100-SXM5-80GB", MemMib: 81559, SellableMib: 80000, MaxShares: 3, CapMode: "watch",
			MeasuredUsedMib: -1, MeasuredUtilMilli: -1, GossipFreeMib: -1, State: "ok", Detail: d}
	}
	return &apiv1.ListNodesResponse{Nodes: []*apiv1.Node{{
		Id: "n1", State: "ready", CpuMilli: 32000, MemMib: 131072, Address: "10.0.1.1:7702", Version: "0.1.0",
		Gpus: []*apiv1.GPU{
			card(0, "GPU-1a", &apiv1.GPUDetail{Name: "NVIDIA H100 80GB HBM3", Driver: "580.65.06", Cuda: "13.0", Compute: "9.0", PowerLimitW: 700, NvlinkGroup: 1,
				Mig: "off", Persistence: "on", Pci: "00000000:1B:00.0", Numa: 0, StrayMib: 3072,
				Strays: []*apiv1.StrayProcess{{Pid: 4242, User: "anna", Command: "python3\x1b[31m", MemMib: 3000}, {Pid: 77, User: "1001", Command: "Xorg", MemMib: -1}}}),
			card(1, "GPU-1b", &apiv1.GPUDetail{Name: "NVIDIA H100 80GB HBM3", Driver: "580.65.06", Cuda: "13.0", Compute: "9.0", NvlinkGroup: 1,
				Mig: "on", Persistence: "off", Pci: "00000000:43:00.0", Numa: -1,
				Instances: []*apiv1.GPUInstance{{Uuid: "MIG-1", Profile: "1g.10gb", MemMib: 9856, Sms: 16}, {Uuid: "MIG-2", MemMib: 40448, Sms: 60}}}),
			card(2, "GPU-1c", nil),
		},
	}}}, nil
}

func TestGPUDetailGolden(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"detail-node-show":      {"node", "show", "n1"},
		"detail-node-show-yaml": {"node", "show", "n1", "-o", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			f := clitest.NewFake()
			w.ServeWith("/a", f, strangers{f})
			golden.Check(t, name, w.Transcript(args...))
		})
	}
}
