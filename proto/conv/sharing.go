package conv

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/sharing"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// SharingOffToLog converts a switch to its stored form.
func SharingOffToLog(o *sharing.Off) *logv1.SharingOff {
	return &logv1.SharingOff{
		Gpu: string(o.GPU), Node: string(o.Node), Partition: o.Partition, Reason: o.Reason, By: uint32(o.By), AtUs: int64(o.At),
	}
}

// SharingOffFromLog converts a stored switch; the caller must call its Check.
func SharingOffFromLog(m *logv1.SharingOff) *sharing.Off {
	return &sharing.Off{
		GPU: cluster.GPUID(m.GetGpu()), Node: cluster.NodeID(m.GetNode()), Partition: m.GetPartition(),
		Reason: m.GetReason(), By: cluster.UID(m.GetBy()), At: cluster.Time(m.GetAtUs()),
	}
}

// SharingOffToAPI converts a switch for users.
func SharingOffToAPI(o *sharing.Off) *apiv1.SharingOff {
	return &apiv1.SharingOff{
		Gpu: string(o.GPU), Node: string(o.Node), Partition: o.Partition, Reason: o.Reason, ByUid: uint32(o.By), At: apiconv.ToTime(o.At),
	}
}
