package jobcmd_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestShowUsed: what the owner of a job sees of what it used, on a shared
// card, on two, and on cores only.
func TestShowUsed(t *testing.T) {
	t.Parallel()
	at := func(minute int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 3, 14, 12, minute, 0, 0, time.UTC))
	}
	share := func(uuid string, index uint32) *apiv1.GPUShare {
		return &apiv1.GPUShare{Uuid: uuid, Type: "A100-SXM4-80GB", Index: index, Share: &apiv1.Share{MemMib: 6144, Milli: 400}}
	}
	job := func(id uint64, m *apiv1.Measured, gpus ...*apiv1.GPUShare) *apiv1.Job {
		return &apiv1.Job{
			Id: id, Name: "train", User: "ada", Uid: 1000, State: "COMPLETED", Node: "n1", GpusWanted: uint32(len(gpus)), Gpus: gpus, ExitCode: new(int32(0)),
			Submitted: at(0), Started: at(1), Ended: at(51), Measured: m,
			Spec: &apiv1.JobSpec{Name: "train", Command: [][]byte{[]byte("python"), []byte("train.py")}, Gpus: uint32(len(gpus)), CpuMilli: 2000, MemMib: 8192},
		}
	}
	shared := job(40, &apiv1.Measured{
		GpuMemMib: 5228, GpuUtilMilli: 420, Seconds: 3000, HostMemMib: 2950, CpuMilli: 1480, PowerW: 180,
		Profile: &apiv1.Profile{
			GpuMemMeanMib: 4980, GpuUtilP95Milli: 710, GpuMemActivityMilli: 310, EnergyJ: 272_400, HostMemHighWaterMib: 7400,
			ReadBytes: 48 << 30, WrittenBytes: 310 << 20, SampledSeconds: 2997.5, GapSeconds: 2.25,
			Neighbours: []*apiv1.NeighbourSpan{
				{Job: 38, FromSeconds: 0, Seconds: 640.2, GpuUtilMilli: 330}, {Job: 41, FromSeconds: 1203.7, Seconds: 1796.3, GpuUtilMilli: 95},
			},
			MoreNeighbours: 2,
		},
	}, share("GPU-1a", 0))
	two := job(42, &apiv1.Measured{
		GpuMemMib: 6144, GpuUtilMilli: 900, Seconds: 5, HostMemMib: 120, CpuMilli: 990, GpuOom: true,
		Profile: &apiv1.Profile{GpuMemMeanMib: 6100, GpuUtilP95Milli: 1000, EnergyJ: 900, HostMemHighWaterMib: 120, WrittenBytes: 4096, SampledSeconds: 4.75},
	}, share("GPU-1a", 0), share("GPU-1b", 1))
	onCores := job(43, &apiv1.Measured{
		Seconds: 3000, HostMemMib: 2950, CpuMilli: 1480, Profile: &apiv1.Profile{HostMemHighWaterMib: 2960, SampledSeconds: 3000},
	})
	unused := job(44, &apiv1.Measured{
		Seconds: 5, HostMemMib: 1, Profile: &apiv1.Profile{EnergyJ: 296, HostMemHighWaterMib: 1, SampledSeconds: 4.9},
	}, share("GPU-1a", 0))
	w := clitest.NewWorld(t)
	f := clitest.NewFake()
	f.Jobs = append(f.Jobs, shared, two, onCores, unused)
	w.Serve("/a", f)
	golden.Check(t, "show-used", w.Transcript("show", "40", "42", "43", "44"))
	golden.Check(t, "show-used-json", w.Transcript("show", "-o", "json", "40"))
}

// TestShowRightNow: of a running job that has its GPUs to itself stands what those
// show, and nothing where one is shared or was not read.
func TestShowRightNow(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(g []*apiv1.GPU)
		want   string
	}{
		"alone on both": {func(g []*apiv1.GPU) { g[1].MeasuredUsedMib, g[1].MeasuredUtilMilli = 1024, 70 }, "its 2 GPUs, which it has to itself, are 50% busy on average with up to 68.5 GiB in use"},
		"one not read":  {func([]*apiv1.GPU) {}, ""},
		"one shared": {func(g []*apiv1.GPU) {
			g[1].MeasuredUsedMib, g[1].MeasuredUtilMilli, g[1].Jobs = 1024, 70, []uint64{13, 14}
		}, ""},
	} {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		i := slices.IndexFunc(f.Nodes, func(n *apiv1.Node) bool { return n.GetId() == "n2" })
		tc.change(f.Nodes[i].Gpus)
		w.Serve("/a", f)
		code := w.Run("show", "13")
		at := strings.Index(w.Out.String(), "Right now")
		if code != 0 || (at >= 0) != (tc.want != "") || !strings.Contains(w.Out.String(), tc.want) {
			t.Errorf("%s: exit code %d: %s%s\nwant %q", name, code, w.Out.String(), w.Errs.String(), tc.want)
		}
	}
}
