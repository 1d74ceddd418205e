package admin_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/admin"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// sickbay is a server whose node n1 has cards in every condition.
type sickbay struct{ *clitest.Fake }

func newSickbay() *sickbay {
	f := &sickbay{Fake: clitest.NewFake()}
	index, by := uint32(1), uint32(0)
	card := func(uuid string, i uint32, state, why string) *apiv1.GPU {
		return &apiv1.GPU{Uuid: uuid, Index: i, Type: "A100-SXM4-80GB", MemMib: 81920, SellableMib: 79872, MaxShares: 3, CapMode: "mps",
			MeasuredUsedMib: -1, MeasuredUtilMilli: -1, State: state, StateReason: why}
	}
	n1 := f.Nodes[1]
	n1.Problem = "a process of j9-a1 cannot be ended"
	n1.Gpus[0].State = "ok"
	n1.Gpus = append(n1.Gpus,
		card("GPU-1b", 1, "failing", "Xid 79: the GPU fell off the bus"),
		card("GPU-1c", 2, "quarantined", "4096 MiB of j9-a1 are not back"),
		card("GPU-1d", 3, "ok", ""), card("GPU-1e", 4, "unknown", "the driver does not answer\x1b[31m"))
	n1.Gpus[3].Drain, n1.Gpus[3].DrainReason = true, "to be swapped on Monday"
	n1.Gpus[4].Drain = true
	n1.History = []*apiv1.NodeEvent{
		{At: clitest.Ago(72 * time.Hour), Kind: "registered"},
		{At: clitest.Ago(2 * time.Hour), Gpu: "GPU-1b", Index: &index, Kind: "failing", Detail: "Xid 79: the GPU fell off the bus"},
		{At: clitest.Ago(time.Hour), Gpu: "GPU-gone", Kind: "drained", Detail: "to be swapped on Monday", ByUid: &by},
	}
	return f
}

func (f *sickbay) find(r interface {
	GetGpu() string
	GetNode() string
	GetIndex() uint32
}) (*apiv1.Node, *apiv1.GPU, error) {
	for _, n := range f.Nodes {
		for _, g := range n.Gpus {
			if g.Uuid == r.GetGpu() || r.GetGpu() == "" && n.Id == r.GetNode() && g.Index == r.GetIndex() {
				return n, g, nil
			}
		}
	}
	return nil, nil, apiconv.Status(cluster.Errorf(cluster.CodeNotFound, "node %s has no GPU %d; see: berth node show %s", r.GetNode(), r.GetIndex(), r.GetNode())).Err()
}

func (f *sickbay) DrainGPU(_ context.Context, r *apiv1.DrainGPURequest) (*apiv1.DrainGPUResponse, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	n, g, err := f.find(r)
	if err != nil {
		return nil, err
	}
	g.Drain, g.DrainReason = true, r.GetReason()
	return &apiv1.DrainGPUResponse{Node: n, Gpu: g.Uuid}, nil
}

func (f *sickbay) ResumeGPU(_ context.Context, r *apiv1.ResumeGPURequest) (*apiv1.ResumeGPUResponse, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	n, g, err := f.find(r)
	if err != nil {
		return nil, err
	}
	g.Drain, g.DrainReason = false, ""
	return &apiv1.ResumeGPUResponse{Node: n, Gpu: g.Uuid}, nil
}

func TestGPUGolden(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"gpu-list":           {"gpu", "list"},
		"gpu-list-node":      {"gpu", "ls", "n2"},
		"gpu-list-name":      {"gpu", "list", "-o", "name"},
		"gpu-list-json":      {"gpu", "list", "-o", "json", "n2"},
		"gpu-drain":          {"gpu", "drain", "n1/0", "--reason", "ECC errors"},
		"gpu-drain-uuid":     {"gpu", "drain", "GPU-1a", "--reason", "ECC errors"},
		"gpu-drain-reason":   {"gpu", "drain", "n1/0"},
		"gpu-drain-missing":  {"gpu", "drain", "n1/7", "--reason", "x"},
		"gpu-drain-malform":  {"gpu", "drain", "n1", "--reason", "x"},
		"gpu-drain-index":    {"gpu", "drain", "n1/first", "--reason", "x"},
		"gpu-resume":         {"gpu", "resume", "n1/3"},
		"gpu-resume-failing": {"gpu", "resume", "GPU-1b"},
		"gpu-node-list":      {"node", "list"},
		"gpu-node-show":      {"node", "show", "n1"},
		"gpu-node-show-yaml": {"node", "show", "n1", "-o", "yaml"},
		"help-gpu":           {"gpu", "--help"},
		"help-gpu-drain":     {"gpu", "drain", "--help"},
		"help-gpu-resume":    {"gpu", "resume", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			f := newSickbay()
			w.ServeWith("/a", f.Fake, f)
			golden.Check(t, name, w.Transcript(args...))
		})
	}
}

func TestParseGPU(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]struct {
		node, uuid string
		index      *uint32
		bad        bool
	}{
		"n7/2":                    {node: "n7", index: new(uint32(2))},
		"GPU-51700000-01-02-03-4": {uuid: "GPU-51700000-01-02-03-4"},
		"n7":                      {bad: true},
		"n7/":                     {bad: true},
		"n7/-1":                   {bad: true},
		"n7/256":                  {bad: true},
		"/2":                      {bad: true},
		"GPU-\x1b[31m":            {bad: true},
	} {
		node, index, uuid, err := admin.ParseGPU(arg)
		if (err != nil) != want.bad {
			t.Errorf("%q: %v, want an error: %t", arg, err, want.bad)
			continue
		}
		if got := []any{node, index, uuid}; !want.bad && !cmp.Equal(got, []any{want.node, want.index, want.uuid}) {
			t.Errorf("%q: %v", arg, cmp.Diff([]any{want.node, want.index, want.uuid}, got))
		}
	}
	if h := admin.GpuHealth(&apiv1.GPU{}); h != "ok" {
		t.Error("a card of an old coordinator is not taken to be sound")
	}
}

// TestJobsOnGPUsByTask: tasks of arrays are shown as people name them, where GPUs are
// listed and where a node is; without an answer they are their numbers.
func TestJobsOnGPUsByTask(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"gpu", "list", "n1"}, {"node", "show", "n1"}, {"node", "list", "-o", "wide", "n1"}} {
		for _, silent := range []bool{false, true} {
			w := clitest.NewWorld(t)
			f := newSickbay()
			f.Jobs = append(f.Jobs, &apiv1.Job{Id: 905, ArrayJobId: 902, ArrayTaskId: new(uint32(3)), State: "RUNNING"})
			f.Nodes[1].Gpus[0].Jobs, f.Nodes[1].Jobs = []uint64{905}, []uint64{905}
			want := "902_3"
			if silent {
				want = "905"
				f.Hook = func(_ context.Context, method string) error {
					if method == "ListJobs" {
						return cluster.Errorf(cluster.CodeInternal, "no")
					}
					return nil
				}
			}
			w.ServeWith("/a", f.Fake, f)
			if got := w.Transcript(args...); !strings.Contains(got, want) || strings.Contains(got, "905") != silent {
				t.Errorf("%q, silent %t: lacks %s:\n%s", args, silent, want, got)
			}
		}
	}
}
