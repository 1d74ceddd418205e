package conv

import (
	"fmt"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// maxCapReason bounds the stored reason why a GPU has no better way to enforce
// shares, in bytes.
const maxCapReason = 512

// maxStateReason bounds the stored reason why a GPU is unhealthy, in bytes.
const maxStateReason = 256

// gpuState converts an agent's GPU state. An unknown state keeps jobs away,
// whatever it means.
func gpuState(g *nodev1.GPU) (cluster.GPUState, string) {
	why := strings.TrimSpace(clip(g.StateReason, maxStateReason))
	switch g.State {
	case nodev1.GPUState_GPU_STATE_UNSPECIFIED, nodev1.GPUState_GPU_STATE_OK:
		return cluster.GPUOK, ""
	case nodev1.GPUState_GPU_STATE_QUARANTINED:
		return cluster.GPUQuarantined, why
	case nodev1.GPUState_GPU_STATE_FAILING:
		return cluster.GPUFailing, why
	case nodev1.GPUState_GPU_STATE_LOST:
		return cluster.GPULost, why
	}
	return cluster.GPUUnknown, why
}

func ordersToLog(orders []cluster.GPUOrder) []*logv1.GPUOrder {
	var out []*logv1.GPUOrder
	for _, o := range orders {
		out = append(out, &logv1.GPUOrder{
			Gpu: string(o.GPU), Drain: o.Drain, Reason: o.Reason, By: uint32(o.By), AtUs: int64(o.At), Resumed: o.Resumed,
		})
	}
	return out
}

func ordersFromLog(node string, orders []*logv1.GPUOrder) ([]cluster.GPUOrder, error) {
	var out []cluster.GPUOrder
	for i, o := range orders {
		if o.Gpu == "" || i > 0 && string(out[i-1].GPU) >= o.Gpu {
			return nil, fmt.Errorf("node %s: order of GPU %q in place %d is not in order", node, o.Gpu, i)
		}
		out = append(out, cluster.GPUOrder{
			GPU: cluster.GPUID(o.Gpu), Drain: o.Drain, Reason: o.Reason, By: cluster.UID(o.By), At: cluster.Time(o.AtUs), Resumed: o.Resumed,
		})
	}
	return out, nil
}

func historyToLog(events []cluster.NodeEvent) []*logv1.NodeEvent {
	var out []*logv1.NodeEvent
	for _, e := range events {
		out = append(out, &logv1.NodeEvent{
			AtUs: int64(e.At), Gpu: string(e.GPU), Kind: e.Kind, Detail: e.Detail, Asked: e.Asked, By: uint32(e.By),
		})
	}
	return out
}

func historyFromLog(events []*logv1.NodeEvent) []cluster.NodeEvent {
	var out []cluster.NodeEvent
	for _, e := range events {
		out = append(out, cluster.NodeEvent{
			At: cluster.Time(e.AtUs), GPU: cluster.GPUID(e.Gpu), Kind: e.Kind, Detail: e.Detail, Asked: e.Asked, By: cluster.UID(e.By),
		})
	}
	return out
}

func historyToAPI(n *cluster.Node) []*apiv1.NodeEvent {
	var out []*apiv1.NodeEvent
	for _, e := range n.History {
		m := &apiv1.NodeEvent{At: apiconv.ToTime(e.At), Gpu: string(e.GPU), Kind: e.Kind, Detail: e.Detail}
		if g := n.GPU(e.GPU); g != nil {
			m.Index = new(uint32(max(0, g.Index)))
		}
		if e.Asked {
			m.ByUid = new(uint32(e.By))
		}
		out = append(out, m)
	}
	return out
}

// healthToAPI sets the state of a GPU, and the administrators' orders for it.
func healthToAPI(o *apiv1.GPU, n *cluster.Node, g *cluster.GPU) {
	o.State, o.StateReason = g.State.String(), g.StateReason
	if order := n.Order(g.ID); order != nil && order.Drain {
		o.Drain, o.DrainReason = true, order.Reason
	}
}
