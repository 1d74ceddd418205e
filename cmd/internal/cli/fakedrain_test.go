package cli

import (
	"context"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func (f *fakeServer) DrainNode(ctx context.Context, r *apiv1.DrainNodeRequest) (*apiv1.DrainNodeResponse, error) {
	if err := f.enter(ctx, "DrainNode"); err != nil {
		return nil, err
	}
	resp := &apiv1.DrainNodeResponse{Node: &apiv1.Node{Id: r.GetId(), State: "ready", Drain: r.GetFrom() == nil, DrainReason: r.GetReason(), Jobs: []uint64{12}}}
	if r.GetFrom() != nil {
		resp.Reservation, resp.Warnings = "drain-"+r.GetId(), []string{"1 jobs run there and may go on into it: 12"}
	}
	return resp, nil
}

func (f *fakeServer) ResumeNode(ctx context.Context, r *apiv1.ResumeNodeRequest) (*apiv1.ResumeNodeResponse, error) {
	if err := f.enter(ctx, "ResumeNode"); err != nil {
		return nil, err
	}
	return &apiv1.ResumeNodeResponse{Node: &apiv1.Node{Id: r.GetId(), State: "ready"}}, nil
}
