package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/coordinator/web/session"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// mostReplayed is how many jobs are replayed, the newest.
const mostReplayed = 20_000

// answers are what the simulator needs of the cluster, as a user gets them.
type answers struct {
	policy          string
	jobs            int
	cut, incomplete bool
	answers         []byte
}

// reach returns the cluster's policy, and when the oldest job of its history ended,
// zero if there is none.
func (s *Server) reach(ctx context.Context, u session.User) (*apiv1.GetStatusResponse, time.Time, error) {
	var oldest time.Time
	conn, err := s.within.of(u)
	if err != nil {
		return nil, oldest, err
	}
	st, err := apirpc.NewClusterServiceClient(conn).GetStatus(ctx, &apiv1.GetStatusRequest{Brief: true})
	if err != nil {
		return nil, oldest, err
	}
	list, err := history(ctx, conn, &apiv1.ListHistoryRequest{Limit: 1, OldestFirst: true})
	if err != nil {
		return nil, oldest, err
	}
	for _, j := range list.(*apiv1.ListHistoryResponse).Jobs {
		oldest = j.GetEnded().AsTime()
	}
	return st, oldest, nil
}

// gather queries nodes and recently ended jobs, as the user, and keeps what the
// simulator reads: no names, no commands, and nothing that changes while no job
// ends.
func (s *Server) gather(ctx context.Context, u session.User, back time.Duration) (*answers, error) {
	ctx, cancel := context.WithTimeout(ctx, gatherTime)
	defer cancel()
	conn, err := s.within.of(u)
	if err != nil {
		return nil, err
	}
	cc := apirpc.NewClusterServiceClient(conn)
	st, err := cc.GetStatus(ctx, &apiv1.GetStatusRequest{Brief: true})
	if err != nil {
		return nil, err
	}
	nodes, err := cc.ListNodes(ctx, &apiv1.ListNodesRequest{})
	if err != nil {
		return nil, err
	}
	out := &answers{policy: st.GetPolicy()}
	var b bytes.Buffer
	err = errors.Join(put(&b, &apiv1.GetStatusResponse{Name: st.GetName(), Policy: st.GetPolicy(), MaxShares: st.GetMaxShares()}), put(&b, machines(nodes)))
	if err != nil {
		return nil, err
	}
	stream, err := apirpc.NewHistoryServiceClient(conn).ListHistory(ctx, &apiv1.ListHistoryRequest{
		Limit: mostReplayed, Filter: &apiv1.HistoryFilter{EndedFrom: timestamppb.New(st.GetNow().AsTime().Add(-back))},
	})
	if err != nil {
		return nil, err
	}
	for {
		page, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			out.answers, out.cut = b.Bytes(), out.jobs == mostReplayed
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out.incomplete = out.incomplete || page.Incomplete
		out.jobs += len(page.Jobs)
		few := &apiv1.ListHistoryResponse{}
		for _, j := range page.Jobs {
			few.Jobs = append(few.Jobs, replayable(j))
		}
		if err := put(&b, few); err != nil {
			return nil, err
		}
	}
}

// put writes a message after its length; equal messages give equal bytes.
func put(b *bytes.Buffer, m proto.Message) error {
	_, err := protodelim.MarshalOptions{MarshalOptions: proto.MarshalOptions{Deterministic: true}}.MarshalTo(b, m)
	return err
}

// machines returns nodes without their current state.
func machines(all *apiv1.ListNodesResponse) *apiv1.ListNodesResponse {
	out := &apiv1.ListNodesResponse{}
	for _, n := range all.GetNodes() {
		m := &apiv1.Node{Id: n.GetId(), CpuMilli: n.GetCpuMilli(), MemMib: n.GetMemMib()}
		for _, g := range n.GetGpus() {
			m.Gpus = append(m.Gpus, &apiv1.GPU{Type: g.GetType(), MemMib: g.GetMemMib(), SellableMib: g.GetSellableMib(), MaxShares: g.GetMaxShares()})
		}
		out.Nodes = append(out.Nodes, m)
	}
	return out
}

// replayable returns the part of a job that the simulator reads.
func replayable(j *apiv1.Job) *apiv1.Job {
	s := j.GetSpec()
	out := &apiv1.Job{
		Id: j.GetId(), State: j.GetState(), GpusWanted: j.GetGpusWanted(), Submitted: j.GetSubmitted(), Started: j.GetStarted(), Ended: j.GetEnded(),
		Predictions: j.GetPredictions(), Predicted: j.GetPredicted(),
		Spec: &apiv1.JobSpec{Exclusive: s.GetExclusive(), GpuType: s.GetGpuType(), CpuMilli: s.GetCpuMilli(), MemMib: s.GetMemMib(), Deadline: s.GetDeadline(), TimeLimit: s.GetTimeLimit()},
	}
	if m := j.GetMeasured(); m != nil {
		out.Measured = &apiv1.Measured{GpuMemMib: m.GetGpuMemMib(), GpuUtilMilli: m.GetGpuUtilMilli(), Seconds: m.GetSeconds()}
	}
	out.Gpus = shares(j.GetGpus())
	for _, a := range j.GetAttempts() {
		b := &apiv1.Attempt{Started: a.GetStarted(), Ended: a.GetEnded(), Gpus: shares(a.GetGpus()), Measured: &apiv1.Measured{GpuUtilMilli: a.GetMeasured().GetGpuUtilMilli()}}
		for _, p := range a.GetParts() {
			b.Parts = append(b.Parts, &apiv1.Part{Gpus: shares(p.GetGpus())})
		}
		out.Attempts = append(out.Attempts, b)
	}
	return out
}

func shares(gpus []*apiv1.GPUShare) []*apiv1.GPUShare {
	var out []*apiv1.GPUShare
	for _, g := range gpus {
		out = append(out, &apiv1.GPUShare{Type: g.GetType(), Share: &apiv1.Share{MemMib: g.GetShare().GetMemMib(), Milli: g.GetShare().GetMilli()}})
	}
	return out
}
