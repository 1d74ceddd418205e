package coordinator_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/lead"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/scheduler/power"
)

// TestPowerOfJobsAndPartitions: what a job asks of its whole GPUs is sent along, and of what
// its partition gives the rest; what agents tell is shown. Bad settings change nothing.
func TestPowerOfJobsAndPartitions(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"))
	set := &apiv1.SetPartitionRequest{Name: "a", Nodes: proto.String("n1"), Default: proto.Bool(true), PowerCap: proto.String("70"), GpuFreq: proto.String("Low")}
	if p := setPartition(t, cc, set).Partition; p.GetPowerCap() != "70W" || p.GetGpuFreq() != "low" {
		t.Errorf("shown as %v", p)
	}
	for _, bad := range []*apiv1.SetPartitionRequest{{PowerCap: proto.String("101%")}, {GpuFreq: proto.String("fast")}} {
		bad.Name = "a"
		if _, err := apirpc.NewClusterServiceClient(cc).SetPartition(as(t, admin), bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
	shares := spec(0)
	shares.Gpus, shares.PowerCap = 1, "60W"
	if _, err := submit(t, cc, alice, reqID(1), shares); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "power_cap: applies to a whole GPU") {
		t.Errorf("one that shares: %v", err)
	}
	begins := func(n int, s *apiv1.JobSpec) (uint64, *nodev1.Assignment) {
		t.Helper()
		ids := submitted(t, cc, alice, reqID(n), s)
		return ids[0], assigned(t, a, ids[0])
	}
	whole := spec(0)
	whole.Gpus, whole.Exclusive, whole.PowerCap = 1, true, "60W"
	id, sent := begins(2, whole)
	if sent.PowerCap != "60W" || sent.GpuFreq != "low" {
		t.Errorf("sent along: %q, %q", sent.PowerCap, sent.GpuFreq)
	}
	a.SendReport(&nodev1.Report{Job: sent.Job, Attempt: sent.Attempt, Token: sent.Token, State: running, Power: []*nodev1.CardPower{{Uuid: sent.Gpus[0].Uuid, CapW: 60, ClockMhz: 300, Why: "w"}}})
	await(t, cc, id, "RUNNING")
	got := job(t, cc, alice, id)
	want := &apiv1.CardPower{Node: "n1", Index: got.Gpus[0].Index, Uuid: sent.Gpus[0].Uuid, CapW: 60, ClockMhz: 300, Why: "w"}
	if p := got.Attempts[0].Power; len(p) != 1 || !proto.Equal(p[0], want) || got.Spec.PowerCap != "60W" || got.Spec.GpuFreq != "" {
		t.Errorf("shown: %v of %v", p, got.Spec)
	}
	if _, sent := begins(3, spec(1000)); sent.Gpus[0].Exclusive || sent.PowerCap != "" || sent.GpuFreq != "" {
		t.Errorf("to one with a part of a GPU: %v", sent)
	}
	held := spec(0)
	held.Gpus, held.Exclusive, held.Hold = 1, true, true
	ids := submitted(t, cc, alice, reqID(4), held)
	for _, c := range []struct {
		req  *apiv1.UpdateJobRequest
		want string
	}{
		{&apiv1.UpdateJobRequest{PowerCap: proto.String("0W")}, "power_cap: \"0W\" is neither watts"},
		{&apiv1.UpdateJobRequest{GpuFreq: proto.String("fast")}, "gpu_freq: \"fast\" is neither MHz"},
		{&apiv1.UpdateJobRequest{PowerCap: proto.String("50"), GpuFreq: proto.String("high")}, ""},
		{&apiv1.UpdateJobRequest{GpuFreq: proto.String("")}, ""},
	} {
		c.req.Id = ids[0]
		_, err := apirpc.NewJobServiceClient(cc).UpdateJob(as(t, alice), c.req)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.req, err)
		}
	}
	if s := job(t, cc, alice, ids[0]).Spec; s.PowerCap != "50W" || s.GpuFreq != "" {
		t.Errorf("it asks for %q and %q", s.PowerCap, s.GpuFreq)
	}
}

// TestAJobWaitsForANodeToBePoweredUp, which its reason says wherever it is shown.
func TestAJobWaitsForANodeToBePoweredUp(t *testing.T) {
	t.Parallel()
	var leases leaseClock
	nothing := func(context.Context, cluster.NodeID) error { return nil }
	c := coordtest.Start(t, coordtest.Options{
		N: 1, Clock: leases.now, Lease: aLease,
		Power: &lead.PowerSaving{Rule: power.Rule{Idle: time.Millisecond, ResumeTimeout: 1e5 * time.Hour, AtOnce: 9}, SuspendTimeout: 1e5 * time.Hour, Suspend: nothing, Resume: nothing},
	})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	silence := alive(a)
	within(t, "it is told to power down", func() bool { return nodeOf(t, cc, "n1").State == "powering-down" })
	silence()
	a.Silence()
	within(t, "it is powered down", func() bool {
		leases.ahead.Add(int64(aLease / 500)) // little, or the coordinator takes it that it stood still itself
		return nodeOf(t, cc, "n1").State == "powered-down"
	})
	id := submitted(t, cc, alice, reqID(1), spec(1000))[0]
	within(t, "the job's reason says that", func() bool { return job(t, cc, alice, id).Reason == "NodePoweringUp" })
	if got := job(t, cc, alice, id).ReasonDetail; got != "waits for node n1 to be powered up" {
		t.Errorf("the reason's detail is %q", got)
	}
	list, err := apirpc.NewJobServiceClient(cc).ListJobs(as(t, alice), &apiv1.ListJobsRequest{Columns: apiv1.JobColumnsOf_JOB_COLUMNS_OF_WAITING})
	if err != nil || list.Columns == nil || !slices.Contains(list.Columns.Texts, "NodePoweringUp") {
		t.Errorf("listed: %v, %v", list, err)
	}
}
