package clitest

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// ListNodes implements apirpc.UnsafeJobServiceServer.
func (f *Fake) ListNodes(ctx context.Context, r *apiv1.ListNodesRequest) (*apiv1.ListNodesResponse, error) {
	if err := f.Enter(ctx, "ListNodes"); err != nil {
		return nil, err
	}
	resp := &apiv1.ListNodesResponse{}
	for _, n := range f.Nodes {
		if len(r.GetIds()) == 0 || slices.Contains(r.GetIds(), n.GetId()) {
			resp.Nodes = append(resp.Nodes, n)
		}
	}
	return resp, nil
}

// PowerNode implements apirpc.UnsafeJobServiceServer.
func (f *Fake) PowerNode(ctx context.Context, r *apiv1.PowerNodeRequest) (*apiv1.PowerNodeResponse, error) {
	if err := f.Enter(ctx, "PowerNode"); err != nil {
		return nil, err
	}
	state := cluster.PoweringDown
	if r.GetUp() {
		state = cluster.PoweringUp
	}
	return &apiv1.PowerNodeResponse{Node: &apiv1.Node{Id: r.GetId(), State: state.String(), PowerReason: r.GetReason()}}, nil
}

// FenceNode implements apirpc.UnsafeJobServiceServer.
func (f *Fake) FenceNode(ctx context.Context, r *apiv1.FenceNodeRequest) (*apiv1.FenceNodeResponse, error) {
	if err := f.Enter(ctx, "FenceNode"); err != nil {
		return nil, err
	}
	return &apiv1.FenceNodeResponse{Node: &apiv1.Node{Id: r.GetId(), State: "unreachable"}, Lost: []uint64{12, 13}, Requeued: []uint64{17}}, nil
}

// RemoveNode implements apirpc.UnsafeJobServiceServer.
func (f *Fake) RemoveNode(ctx context.Context, _ *apiv1.RemoveNodeRequest) (*apiv1.RemoveNodeResponse, error) {
	return &apiv1.RemoveNodeResponse{}, f.Enter(ctx, "RemoveNode")
}

// CreateToken implements apirpc.UnsafeJobServiceServer.
func (f *Fake) CreateToken(ctx context.Context, r *apiv1.CreateTokenRequest) (*apiv1.CreateTokenResponse, error) {
	if err := f.Enter(ctx, "CreateToken"); err != nil {
		return nil, err
	}
	return &apiv1.CreateTokenResponse{Token: "tok-" + r.GetRole() + "-" + r.GetId(), Expires: timestamppb.New(Now.Add(r.GetTtl().AsDuration()))}, nil
}

// GetStatus implements apirpc.UnsafeJobServiceServer.
func (f *Fake) GetStatus(ctx context.Context, _ *apiv1.GetStatusRequest) (*apiv1.GetStatusResponse, error) {
	if err := f.Enter(ctx, "GetStatus"); err != nil {
		return nil, err
	}
	return &apiv1.GetStatusResponse{
		Warnings: f.Unwell, ClusterId: "6f1c2a9e", Name: "lab", Index: 4711, AnsweredBy: "c2",
		Jobs: []*apiv1.JobCount{{State: "RUNNING", Count: 3}, {State: "QUEUED", Count: 1}},
		Members: []*apiv1.Member{
			{Id: "c1", Address: "10.0.0.1:7701", Leader: true, Voter: true, Reachable: true, Term: 3, LastIndex: 4711, AppliedIndex: 4711, StateHash: "9c1185a5c5e9fc54612808977ee8f548", StateHashIndex: 4000, Pid: 811, Version: "0.1.0", ModelVersion: 7, ModelSha256: SampleSHA, HistoryJobs: 15_300, HistoryBytes: 4_700_000, DiskFree: 12 << 30, DiskSize: 100 << 30},
			{Id: "c2", Address: "10.0.0.2:7701", Voter: true, Reachable: true, Term: 3, LastIndex: 4711, AppliedIndex: 4710, StateHash: "9c1185a5c5e9fc54612808977ee8f548", StateHashIndex: 4000, Pid: 790, Version: "0.1.0", HistoryJobs: 1, HistoryHoles: 1, HistoryProblem: "write history/head-00000000000000000000: no space left on device",
				DiskFree: 300 << 20, DiskSize: 100 << 30, DiskProblem: "300 MiB of 102400 MiB are free in /var/lib/berth/coordinator: new jobs are refused"},
			{Id: "c3", Address: "10.0.0.3:7701", Voter: true},
		},
	}, nil
}

// DrainNode implements apirpc.UnsafeJobServiceServer.
func (f *Fake) DrainNode(ctx context.Context, r *apiv1.DrainNodeRequest) (*apiv1.DrainNodeResponse, error) {
	if err := f.Enter(ctx, "DrainNode"); err != nil {
		return nil, err
	}
	resp := &apiv1.DrainNodeResponse{Node: &apiv1.Node{Id: r.GetId(), State: "ready", Drain: r.GetFrom() == nil, DrainReason: r.GetReason(), Jobs: []uint64{12, 21}}}
	if r.GetFrom() != nil {
		resp.Reservation, resp.Warnings = "drain-"+r.GetId(), []string{"1 jobs run there and may continue into it: 12"}
	}
	return resp, nil
}

// ResumeNode implements apirpc.UnsafeJobServiceServer.
func (f *Fake) ResumeNode(ctx context.Context, r *apiv1.ResumeNodeRequest) (*apiv1.ResumeNodeResponse, error) {
	if err := f.Enter(ctx, "ResumeNode"); err != nil {
		return nil, err
	}
	return &apiv1.ResumeNodeResponse{Node: &apiv1.Node{Id: r.GetId(), State: "ready"}}, nil
}

// Parted is a Fake whose cluster has partitions. Set is the last one that was set.
type Parted struct {
	*Fake
	Parts []*apiv1.Partition
	Set   *apiv1.SetPartitionRequest
}

// NewParted returns one with the partitions debug and gpu.
func NewParted() *Parted {
	p := &Parted{Fake: NewFake(), Parts: []*apiv1.Partition{
		{Name: "debug", Nodes: "n1", MaxTime: durationpb.New(30 * time.Minute), Policy: "slot+fifo", NodesTotal: 1, NodesReady: 1, GpusTotal: 1, GpusUsed: 1, JobsRunning: 1},
		{Name: "gpu", Nodes: "n[1-4]", GpuTypes: []string{"A100-SXM4-80GB", "T4"}, Default: true, Down: true, DefaultTime: durationpb.New(time.Hour), SessionIdle: durationpb.New(2 * time.Hour), PowerCap: "70%", GpuFreq: "high",
			Policy: "ffd", NodesTotal: 3, NodesReady: 1, GpusTotal: 3, GpusUsed: 2, JobsRunning: 1, JobsWaiting: 4},
	}}
	for i, j := range p.Jobs {
		j.Partition = []string{"gpu", "debug"}[i%2]
	}
	p.Nodes[0].Partitions, p.Nodes[1].Partitions = []string{"gpu"}, []string{"debug", "gpu"}
	return p
}

// ListPartitions implements apirpc.UnsafeJobServiceServer.
func (p *Parted) ListPartitions(ctx context.Context, r *apiv1.ListPartitionsRequest) (*apiv1.ListPartitionsResponse, error) {
	if err := p.Enter(ctx, "ListPartitions"); err != nil {
		return nil, err
	}
	resp := &apiv1.ListPartitionsResponse{}
	for _, name := range r.GetNames() {
		if !slices.ContainsFunc(p.Parts, func(x *apiv1.Partition) bool { return x.GetName() == name }) {
			return nil, apiconv.Status(cluster.Errorf(cluster.CodeNotFound, "partition %q is not known; see: berth partition list", name)).Err()
		}
	}
	for _, x := range p.Parts {
		if len(r.GetNames()) == 0 || slices.Contains(r.GetNames(), x.GetName()) {
			resp.Partitions = append(resp.Partitions, x)
		}
	}
	return resp, nil
}

// SetPartition implements apirpc.UnsafeJobServiceServer.
func (p *Parted) SetPartition(_ context.Context, r *apiv1.SetPartitionRequest) (*apiv1.SetPartitionResponse, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.Set = r
	return &apiv1.SetPartitionResponse{Partition: p.Parts[0], Warnings: []string{"no such node yet: n9; jobs run there once it joins"}}, nil
}

// RemovePartition implements apirpc.UnsafeJobServiceServer.
func (p *Parted) RemovePartition(_ context.Context, r *apiv1.RemovePartitionRequest) (*apiv1.RemovePartitionResponse, error) {
	if r.GetName() == "gpu" {
		return nil, apiconv.Status(cluster.Errorf(cluster.CodeConflict, "partition gpu has 4 jobs that wait and 1 that run; set it down, and cancel them or wait for their end")).Err()
	}
	return &apiv1.RemovePartitionResponse{}, nil
}
