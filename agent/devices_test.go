package agent_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/gpu"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// cards is a provider of two cards.
type cards struct{}

func (cards) Inventory(context.Context) ([]gpu.Card, error) {
	return []gpu.Card{{UUID: "GPU-1", Type: "H100", MemMiB: 81920}, {UUID: "GPU-2", Type: "H100", MemMiB: 81920}}, nil
}
func (cards) Usage(context.Context) ([]gpu.Usage, error) { return nil, nil }
func (cards) Admit(_ context.Context, g gpu.Grant) ([]string, error) {
	return gpu.Env(g), nil
}
func (cards) Retire(context.Context, string) error { return nil }
func (cards) Close() error                         { return nil }

// devices gives every card but those it was told not to.
type devices struct {
	mu  sync.Mutex
	bad map[string]string
}

func (d *devices) set(uuid, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bad = map[string]string{uuid: why}
}

func (d *devices) Grant(uuids []string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, u := range uuids {
		if why := d.bad[u]; why != "" {
			return nil, errors.New(why)
		}
		names = append(names, "nvidia.com/gpu="+u)
	}
	return names, nil
}

func startWithDevices(t *testing.T, d *devices) *rig {
	t.Parallel()
	r := &rig{t: t, dir: t.TempDir(), rt: agenttest.New(), leader: agenttest.NewLeader(t)}
	ctx, cancel := context.WithCancel(context.Background())
	a, err := agent.New(ctx, agent.Config{
		Node: "n1", BootID: "boot", Dir: r.dir, Coordinators: []string{"leader"}, Dial: r.leader.Dial, Host: r.rt,
		GPUs: cards{}, Devices: d, CapMode: "none",
		Users: users{}, CPUMilli: 8000, MemMiB: 1024, Grace: 50 * time.Millisecond, Heartbeat: 20 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("agent: %v", err)
		}
	})
	return r
}

func onCard(job uint64, uuid string) *nodev1.Assignment {
	as := assignment(job)
	as.Gpus = []*nodev1.Share{{Uuid: uuid, MemMib: 81920, Milli: 1000, Exclusive: true}}
	return as
}

// TestJobsGetTheirDevices: by name, with the variables of a CUDA job, and with
// nothing that orders the toolkit about.
func TestJobsGetTheirDevices(t *testing.T) {
	r := startWithDevices(t, &devices{})
	as := onCard(1, "GPU-2")
	as.Env = [][]byte{
		[]byte("NVIDIA_VISIBLE_DEVICES=all"), []byte("NVIDIA_DRIVER_CAPABILITIES=all"), []byte("NVIDIA_MIG_CONFIG_DEVICES=all"),
		[]byte("NVIDIA_GPU_MEMORY_LIMIT=0"), []byte("NVIDIA_REQUIRE_CUDA=x"), []byte("CUDA_VISIBLE_DEVICES=0,1"),
		[]byte("NVIDIA_TF32_OVERRIDE=0"), []byte("LD_LIBRARY_PATH=/home/alice/lib"),
	}
	r.leader.Assign(as)
	r.reported(1, running)
	l := r.rt.Launch(id(1))
	if !slices.Equal(l.CDIDevices, []string{"nvidia.com/gpu=GPU-2"}) {
		t.Errorf("devices %q", l.CDIDevices)
	}
	var got []string
	for _, e := range l.Env {
		if strings.HasPrefix(e, "NVIDIA_") || strings.HasPrefix(e, "CUDA_V") || strings.HasPrefix(e, "LD_") {
			got = append(got, e)
		}
	}
	slices.Sort(got)
	want := []string{"CUDA_VISIBLE_DEVICES=GPU-2", "LD_LIBRARY_PATH=/home/alice/lib", "NVIDIA_TF32_OVERRIDE=0"}
	if !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
}

// TestACardThatCannotBeGiven: the node is at fault and not the job, the card
// leaves the node's offer at once, and the other stays.
func TestACardThatCannotBeGiven(t *testing.T) {
	d := &devices{}
	r := startWithDevices(t, d)
	r.eventually("both cards offered", func() bool { h := r.leader.Hello(); return h != nil && len(h.Gpus) == 2 })
	d.set("GPU-2", "CDI: the specification is stale; run: nvidia-ctk cdi generate")
	r.leader.Assign(onCard(1, "GPU-2"))
	rep := r.reported(1, lost)
	if rep.Reason != "NodeFault" || !strings.HasPrefix(rep.Detail, "CDI: ") || !strings.Contains(rep.Detail, "nvidia-ctk cdi generate") || strings.Contains(rep.Detail, "\n") {
		t.Errorf("reported %+v", rep)
	}
	r.eventually("the card leaves the offer", func() bool { h := r.leader.Hello(); return len(h.Gpus) == 1 && h.Gpus[0].Uuid == "GPU-1" })
}
