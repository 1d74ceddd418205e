package admin_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func TestPartitionGolden(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"partition-list":        {"partition", "list"},
		"partition-list-json":   {"partition", "ls", "-o", "json"},
		"partition-list-name":   {"partition", "list", "-o", "name"},
		"partition-show":        {"partition", "show", "gpu"},
		"partition-show-both":   {"partition", "show", "debug", "gpu"},
		"partition-show-yaml":   {"partition", "show", "debug", "-o", "yaml"},
		"partition-missing":     {"partition", "show", "nope"},
		"partition-set":         {"partition", "set", "debug", "--nodes", "n[1,9]", "--max-time", "30m"},
		"partition-set-state":   {"partition", "set", "gpu", "--state", "idle"},
		"partition-set-nodes":   {"partition", "set", "gpu", "--nodes", "n[1-"},
		"partition-set-time":    {"partition", "set", "gpu", "--max-time", "soon"},
		"partition-set-name":    {"partition", "set", "a/b", "--nodes", "n1"},
		"partition-remove":      {"partition", "remove", "debug"},
		"partition-remove-busy": {"partition", "remove", "gpu"},
		"partition-queue":       {"queue"},
		"partition-queue-wide":  {"queue", "-o", "wide"},
		"partition-node-list":   {"node", "list"},
		"partition-node-show":   {"node", "show", "n1"},
		"partition-job":         {"show", "12"},
		"help-partition":        {"partition", "--help"},
		"help-partition-set":    {"partition", "set", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.ServeParted("/a", clitest.NewParted())
			golden.Check(t, name, w.Transcript(args...))
		})
	}
}

func TestNoPartitions(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	p := clitest.NewParted()
	p.Parts = nil
	w.ServeParted("/a", p)
	golden.Check(t, "partition-list-none", w.Transcript("partition", "list"))
}

// TestPartitionSetSendsWhatWasSaid: what was not said is not there.
func TestPartitionSetSendsWhatWasSaid(t *testing.T) {
	t.Parallel()
	str, num, yes, no := func(s string) *string { return &s }, func(n int64) *int64 { return &n }, true, false
	for _, c := range []struct {
		name string
		args []string
		want *apiv1.SetPartitionRequest
	}{
		{"nothing", nil, &apiv1.SetPartitionRequest{Name: "p"}},
		{"all", []string{"--nodes", "n1", "--gpu-types", "T4, A100", "--default", "--max-time", "24h", "--default-time", "90", "--session-idle", "2h", "--state", "up", "--def-mem-per-gpu", "16G", "--def-cpus-per-gpu", "4", "--least-mem", "1G", "--least-cpus", "0.5", "--max-gpus", "8", "--power-cap", "250", "--gpu-freq", "High", "--lend-to", "train,batch", "--lend-short", "90s"}, &apiv1.SetPartitionRequest{
			Name: "p", Nodes: str("n1"), SetGpuTypes: true, GpuTypes: []string{"T4", "A100"}, Default: &yes, MaxTime: durationpb.New(24 * time.Hour),
			DefaultTime: durationpb.New(90 * time.Minute), SessionIdle: durationpb.New(2 * time.Hour), Down: &no,
			MemPerGpuMib: num(16 << 10), CpuPerGpuMilli: num(4000), LeastMemMib: num(1 << 10), LeastCpuMilli: num(500), MaxGpus: num(8), PowerCap: proto.String("250W"), GpuFreq: proto.String("high"),
			SetLendTo: true, LendTo: []string{"train", "batch"}, LendShort: durationpb.New(90 * time.Second),
		}},
		{"taken back", []string{"--gpu-types", "", "--default=false", "--max-time", "none", "--session-idle", "none", "--state", "down", "--def-mem-per-gpu", "none", "--least-cpus", "none", "--max-gpus", "none", "--power-cap", "none", "--gpu-freq", "none", "--lend-to", "", "--lend-short", "none"}, &apiv1.SetPartitionRequest{
			Name: "p", SetGpuTypes: true, Default: &no, MaxTime: durationpb.New(0), SessionIdle: durationpb.New(0), Down: &yes, MemPerGpuMib: num(0), LeastCpuMilli: num(0), MaxGpus: num(0), PowerCap: proto.String(""), GpuFreq: proto.String(""),
			SetLendTo: true, LendShort: durationpb.New(0),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			p := clitest.NewParted()
			w.ServeParted("/a", p)
			if code := w.Run(append([]string{"partition", "set", "p"}, c.args...)...); code != 0 {
				t.Fatalf("exit code %d: %s", code, w.Errs.String())
			}
			if d := cmp.Diff(c.want, p.Set, protocmp.Transform()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestQueueOfPartitions: the filter goes to the coordinator.
func TestQueueOfPartitions(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	p := clitest.NewParted()
	w.ServeParted("/a", p)
	if code := w.Run("queue", "-p", "gpu,debug"); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.Errs.String())
	}
	if d := cmp.Diff([]string{"gpu", "debug"}, p.LastList.GetPartitions()); d != "" {
		t.Error(d)
	}
}
