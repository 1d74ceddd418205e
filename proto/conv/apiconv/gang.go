package apiconv

import (
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// partsToAPI converts the parts of a multi-node attempt; nil for one node.
func partsToAPI(a *cluster.Attempt, owner cluster.Owner, gpu GPULookup) []*apiv1.Part {
	if a.Gang == nil {
		return nil
	}
	var out []*apiv1.Part
	for rank, b := range a.Berths() {
		p := &a.Gang.Parts[rank]
		m := &apiv1.Part{
			Node: string(b.Node), State: p.State.String(), Reason: string(p.Reason.Code), ReasonDetail: detailOf(p.Reason, owner),
			Gpus: sharesToAPI(b, gpu), Ready: p.Ready, Left: ToTime(p.Left), Came: p.Token > 0,
		}
		m.ExitCode, m.Signal = exitToAPI(p.Exit)
		out = append(out, m)
	}
	return out
}

// changesToAPI converts how nodes joined and left an attempt.
func changesToAPI(cs []cluster.SizeChange) (out []*apiv1.SizeChange) {
	for _, c := range cs {
		out = append(out, &apiv1.SizeChange{At: ToTime(c.At), From: uint32(max(0, c.From)), To: uint32(max(0, c.To)), Why: c.Why, Took: ToDuration(c.Took)})
	}
	return out
}
