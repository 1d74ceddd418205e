package cli

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// parted is a server with partitions.
type parted struct {
	*fakeServer
	parts []*apiv1.Partition
	set   *apiv1.SetPartitionRequest
}

func newParted() *parted {
	p := &parted{fakeServer: newFake(), parts: []*apiv1.Partition{
		{Name: "debug", Nodes: "n1", MaxTime: durationpb.New(30 * time.Minute), Policy: "slot+fifo", NodesTotal: 1, NodesReady: 1, GpusTotal: 1, GpusUsed: 1, JobsRunning: 1},
		{Name: "gpu", Nodes: "n[1-4]", GpuTypes: []string{"A100-SXM4-80GB", "T4"}, Default: true, Down: true, DefaultTime: durationpb.New(time.Hour),
			Policy: "ffd", NodesTotal: 3, NodesReady: 1, GpusTotal: 3, GpusUsed: 2, JobsRunning: 1, JobsWaiting: 4},
	}}
	for i, j := range p.jobs {
		j.Partition = []string{"gpu", "debug"}[i%2]
	}
	p.nodes[0].Partitions, p.nodes[1].Partitions = []string{"gpu"}, []string{"debug", "gpu"}
	return p
}

func (p *parted) ListPartitions(ctx context.Context, r *apiv1.ListPartitionsRequest) (*apiv1.ListPartitionsResponse, error) {
	if err := p.enter(ctx, "ListPartitions"); err != nil {
		return nil, err
	}
	resp := &apiv1.ListPartitionsResponse{}
	for _, name := range r.GetNames() {
		if !slices.ContainsFunc(p.parts, func(x *apiv1.Partition) bool { return x.GetName() == name }) {
			return nil, conv.Status(cluster.Errorf(cluster.CodeNotFound, "partition %q is not known; see: berth partition list", name)).Err()
		}
	}
	for _, x := range p.parts {
		if len(r.GetNames()) == 0 || slices.Contains(r.GetNames(), x.GetName()) {
			resp.Partitions = append(resp.Partitions, x)
		}
	}
	return resp, nil
}

func (p *parted) SetPartition(_ context.Context, r *apiv1.SetPartitionRequest) (*apiv1.SetPartitionResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set = r
	return &apiv1.SetPartitionResponse{Partition: p.parts[0], Warnings: []string{"no such node yet: n9; jobs run there once it joins"}}, nil
}

func (p *parted) RemovePartition(_ context.Context, r *apiv1.RemovePartitionRequest) (*apiv1.RemovePartitionResponse, error) {
	if r.GetName() == "gpu" {
		return nil, conv.Status(cluster.Errorf(cluster.CodeConflict, "partition gpu has 4 jobs that wait and 1 that run; set it down, and cancel them or wait for their end")).Err()
	}
	return &apiv1.RemovePartitionResponse{}, nil
}

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
			w := newWorld(t)
			w.serveParted("/a", newParted())
			golden(t, name, w.transcript(args...))
		})
	}
}

func TestNoPartitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newParted()
	p.parts = nil
	w.serveParted("/a", p)
	golden(t, "partition-list-none", w.transcript("partition", "list"))
}

// TestPartitionSetSendsWhatWasSaid: what was not said is not there.
func TestPartitionSetSendsWhatWasSaid(t *testing.T) {
	t.Parallel()
	str, yes, no := func(s string) *string { return &s }, true, false
	for _, c := range []struct {
		name string
		args []string
		want *apiv1.SetPartitionRequest
	}{
		{"nothing", nil, &apiv1.SetPartitionRequest{Name: "p"}},
		{"all", []string{"--nodes", "n1", "--gpu-types", "T4, A100", "--default", "--max-time", "24h", "--default-time", "90", "--state", "up"}, &apiv1.SetPartitionRequest{
			Name: "p", Nodes: str("n1"), SetGpuTypes: true, GpuTypes: []string{"T4", "A100"}, Default: &yes, MaxTime: durationpb.New(24 * time.Hour),
			DefaultTime: durationpb.New(90 * time.Minute), Down: &no,
		}},
		{"taken back", []string{"--gpu-types", "", "--default=false", "--max-time", "none", "--state", "down"}, &apiv1.SetPartitionRequest{
			Name: "p", SetGpuTypes: true, Default: &no, MaxTime: durationpb.New(0), Down: &yes,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := newParted()
			w.serveParted("/a", p)
			if code := w.run(append([]string{"partition", "set", "p"}, c.args...)...); code != 0 {
				t.Fatalf("exit code %d: %s", code, w.errs.String())
			}
			if d := cmp.Diff(c.want, p.set, protocmp.Transform()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestQueueOfPartitions: the filter goes to the coordinator.
func TestQueueOfPartitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newParted()
	w.serveParted("/a", p)
	if code := w.run("queue", "-p", "gpu,debug"); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.errs.String())
	}
	if d := cmp.Diff([]string{"gpu", "debug"}, p.lastList.GetPartitions()); d != "" {
		t.Error(d)
	}
}
