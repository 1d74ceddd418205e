package clitest

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Ago returns a time before Now.
func Ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(Now.Add(-d)) }

// SampleJobs returns jobs in every state that tables show: 12 and 13 run, 14
// and 15 wait, 16 failed.
func SampleJobs() []*apiv1.Job {
	spec := &apiv1.JobSpec{
		Name: "train", Command: [][]byte{[]byte("python"), []byte("train.py"), []byte("--note"), []byte("it's")}, Env: [][]byte{[]byte("PATH=/usr/bin")},
		Dir: []byte("/home/ann/run"), Gpus: 1, GpuMemMib: 12288, TimeLimit: durationpb.New(2 * time.Hour), Expected: durationpb.New(90 * time.Minute),
		Stdout: []byte("berth-%j.out"), CpuMilli: 2500, MemMib: 8192,
	}
	shares := []*apiv1.GPUShare{{Uuid: "GPU-1a", Type: "A100-SXM4-80GB", Index: 0, Share: &apiv1.Share{MemMib: 12288, Milli: 620}, CapMode: "mps"}}
	return []*apiv1.Job{
		{
			Id: 12, Name: "train", User: "ann", Uid: 1001, State: "RUNNING", Node: "n1", GpusWanted: 1, Gpus: shares, Spec: spec,
			Submitted: Ago(2 * time.Hour), Started: Ago(time.Hour + 2*time.Minute + 3*time.Second), Predicted: SamplePrediction("A100-SXM4-80GB"),
			Neighbours: []uint64{13}, PredictedSlowdown: 1.184, Revision: 812,
			Attempts: []*apiv1.Attempt{{No: 1, State: "RUNNING", Node: "n1", Gpus: shares, Placed: Ago(time.Hour + 2*time.Minute + 4*time.Second),
				Started: Ago(time.Hour + 2*time.Minute + 3*time.Second), Why: "busiest GPU that fits", Predicted: SamplePrediction("A100-SXM4-80GB"), Token: 790}},
		},
		{
			Id: 13, Name: "sweep\x1b[31m\u202e", User: "bob", Uid: 1002, State: "RUNNING", Node: "n2", GpusWanted: 2,
			Gpus: []*apiv1.GPUShare{
				{Uuid: "GPU-2a", Type: "H100", Index: 0, Share: &apiv1.Share{MemMib: 80000, Milli: 1000, Exclusive: true}},
				{Uuid: "GPU-2b", Type: "H100", Index: 1, Share: &apiv1.Share{MemMib: 80000, Milli: 1000, Exclusive: true}},
			},
			Submitted: Ago(50 * time.Hour), Started: Ago(49*time.Hour + 5*time.Minute),
		},
		{
			Id: 14, Name: "eval", User: "ann", Uid: 1001, State: "QUEUED", GpusWanted: 1, Queue: "GPU-1a", QueuePosition: 1,
			Reason: "GPUMemory", ReasonDetail: "GPU 0 of n1: 11.2 GiB free, needs 13.0 GiB", Submitted: Ago(10 * time.Minute),
			EstimatedStart: timestamppb.New(Now.Add(25 * time.Minute)), Predicted: SamplePrediction("A100-SXM4-80GB"),
			Spec: &apiv1.JobSpec{Name: "eval", Command: [][]byte{[]byte("./eval.sh")}, Dir: []byte("/home/ann/run"), Gpus: 1, Stdout: []byte("berth-%j.out")},
		},
		{Id: 15, Name: "prep", User: "cyd", Uid: 1003, State: "PENDING", Reason: "Planning", Submitted: Ago(time.Second)},
		{
			Id: 16, Name: "old", User: "ann", Uid: 1001, State: "FAILED", Reason: "NonZeroExitCode", ReasonDetail: "exit code 5", ExitCode: new(int32(5)), Node: "n1", GpusWanted: 1, Gpus: shares,
			Submitted: Ago(5 * time.Hour), Started: Ago(4 * time.Hour), Ended: Ago(3 * time.Hour),
			Measured: &apiv1.Measured{GpuMemMib: 9000, GpuUtilMilli: 550, Seconds: 3600, HostMemMib: 3000, CpuMilli: 1500, GpuOom: true},
			Spec:     &apiv1.JobSpec{Name: "old", Command: [][]byte{[]byte("false")}, Dir: []byte("/nowhere"), Gpus: 1, Stdout: []byte("%x-%j.log")},
		},
	}
}

// SampleNodes returns the nodes n2, n1 and n3, in this order; n3 is unreachable.
func SampleNodes() []*apiv1.Node {
	return []*apiv1.Node{
		{
			Id: "n2", State: "ready", Drain: true, DrainReason: "GPU 1 reports ECC errors", CpuMilli: 64000, MemMib: 262144, Jobs: []uint64{13},
			CpuUsedMilli: 16000, MemUsedMib: 65536, Address: "10.0.1.2:7702", Version: "0.1.0", Runtimes: []string{"containerd"}, Gossip: "alive",
			Gpus: []*apiv1.GPU{
				{Uuid: "GPU-2a", Index: 0, Type: "H100", MemMib: 81559, SellableMib: 80000, LedgerUsedMib: 80000, LedgerUsedMilli: 1000, Shares: 1, MaxShares: 3, Exclusive: true, CapMode: "dmem", Scope: "anyone", MeasuredUsedMib: 70123, MeasuredUtilMilli: 930, GossipFreeMib: 9000, Jobs: []uint64{13}},
				{Uuid: "GPU-2b", Index: 1, Type: "H100", MemMib: 81559, SellableMib: 80000, LedgerUsedMib: 80000, LedgerUsedMilli: 1000, Shares: 1, MaxShares: 3, Exclusive: true, CapMode: "dmem", Scope: "anyone", MeasuredUsedMib: -1, MeasuredUtilMilli: -1, GossipFreeMib: -1, Jobs: []uint64{13}},
			},
		},
		{
			Id: "n1", State: "ready", CpuMilli: 32000, CpuUsedMilli: 2500, MemMib: 131072, MemUsedMib: 8192, Jobs: []uint64{12}, Address: "10.0.1.1:7702",
			Version: "0.1.0", BootId: "b-1", Registered: Ago(72 * time.Hour), LastContact: Ago(time.Second), Runtimes: []string{"containerd", "process"}, Gossip: "alive",
			Gpus: []*apiv1.GPU{{Uuid: "GPU-1a", Index: 0, Type: "A100-SXM4-80GB", MemMib: 81920, SellableMib: 79872, LedgerUsedMib: 12288, LedgerUsedMilli: 620, Shares: 1, MaxShares: 3, CapMode: "mps", Scope: "same-user", CapReason: "dmem: driver 570.86.15 is older than 615; mig: the card is not cut into instances", MeasuredUsedMib: 11011, MeasuredUtilMilli: 580, GossipFreeMib: 70000, Queued: 1, Jobs: []uint64{12}}},
		},
		{Id: "n3", State: "unreachable", CpuMilli: 8000, MemMib: 16384, Gossip: "dead"},
	}
}
