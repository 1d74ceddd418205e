package clitest

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// SetSharing implements apirpc.ClusterServiceServer: it records places as named.
func (f *Fake) SetSharing(ctx context.Context, r *apiv1.SetSharingRequest) (*apiv1.SetSharingResponse, error) {
	if err := f.Enter(ctx, "SetSharing"); err != nil {
		return nil, err
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	place := &apiv1.SharingOff{Node: r.GetNode(), Partition: r.GetPartition(), Gpu: r.GetGpu(), Reason: r.GetReason(), ByUid: 0, At: timestamppb.New(Now)}
	if r.Index != nil {
		place.Node, place.Gpu = "", "GPU-of-"+r.GetNode()
	}
	if !r.GetLook() {
		f.Unshared = slices.DeleteFunc(f.Unshared, func(o *apiv1.SharingOff) bool {
			return o.GetNode() == place.GetNode() && o.GetPartition() == place.GetPartition() && o.GetGpu() == place.GetGpu()
		})
		if r.GetOff() {
			f.Unshared = append(f.Unshared, place)
		}
	}
	return &apiv1.SetSharingResponse{Off: f.Unshared}, nil
}

// SetDenied implements apirpc.ClusterServiceServer.
func (f *Fake) SetDenied(ctx context.Context, r *apiv1.SetDeniedRequest) (*apiv1.SetDeniedResponse, error) {
	if err := f.Enter(ctx, "SetDenied"); err != nil {
		return nil, err
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	who := &apiv1.Denied{Role: r.GetRole(), Id: r.GetId(), At: timestamppb.New(Now)}
	at := slices.IndexFunc(f.Denied, func(d *apiv1.Denied) bool { return proto.Equal(d, who) })
	switch {
	case r.GetLook():
	case r.GetAllow() && at < 0:
		return nil, status.Errorf(codes.NotFound, "%s %s is not denied", r.GetRole(), r.GetId())
	case r.GetAllow():
		f.Denied = slices.Delete(f.Denied, at, at+1)
	case at < 0:
		f.Denied = append(f.Denied, who)
	}
	return &apiv1.SetDeniedResponse{Denied: f.Denied}, nil
}
