package apiconv

import (
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// partsToAPI tells of each node of an attempt on several; nil for one.
func partsToAPI(a *cluster.Attempt, gpu GPULookup) []*apiv1.Part {
	if a.Gang == nil {
		return nil
	}
	var out []*apiv1.Part
	for rank, b := range a.Berths() {
		p := &a.Gang.Parts[rank]
		m := &apiv1.Part{
			Node: string(b.Node), State: p.State.String(), Reason: string(p.Reason.Code), ReasonDetail: p.Reason.Detail,
			Gpus: sharesToAPI(b, gpu), Ready: p.Ready,
		}
		m.ExitCode, m.Signal = exitToAPI(p.Exit)
		out = append(out, m)
	}
	return out
}
