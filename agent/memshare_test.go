package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/gpu/caps/capstest"
	"github.com/berth-scheduler/berth/agent/gpu/sim"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// viaMPS is a node whose card is shared through a daemon, a stand-in here.
func viaMPS(t *testing.T) (c agent.MemCaps, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "mps")
	c = patient()
	c.Choose = func(gpu.Card) caps.Choice {
		return caps.Choice{Mode: caps.MPS, Scope: cluster.ScopeSameUser, Why: []caps.Lack{{Mode: caps.Dmem, Why: "driver 570.1 is older than 615"}}}
	}
	c.Daemons = caps.NewDaemons(caps.DaemonsConfig{Control: capstest.Control(t), Dir: dir, Log: slog.New(slog.DiscardHandler)})
	return c, dir
}

func TestJobsShareThroughADaemon(t *testing.T) {
	c, dir := viaMPS(t)
	m := newMemRig(t, c)
	card := sim.UUID("n1", 0)
	as := assignment(1)
	as.Env = [][]byte{[]byte("CUDA_MPS_PIPE_DIRECTORY=/tmp/mine"), []byte("NVIDIA_GPU_MEMORY_LIMIT=999999"), []byte("TF_FORCE_GPU_ALLOW_GROWTH=false")}
	as.Gpus = []*nodev1.Share{{Uuid: card, MemMib: 2000, Milli: 200}}
	m.leader.Assign(as)
	m.reported(1, running)
	env := m.rt.Launch(id(1)).Env
	for _, want := range []string{
		"CUDA_MPS_PIPE_DIRECTORY=" + filepath.Join(dir, card, "pipe"), "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2000M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20",
		"TF_FORCE_GPU_ALLOW_GROWTH=false", "XLA_PYTHON_CLIENT_PREALLOCATE=false",
	} {
		if !slices.Contains(env, want) {
			t.Errorf("the environment lacks %s: %q", want, env)
		}
	}
	if strings.Contains(strings.Join(env, "\n"), "NVIDIA_GPU_MEMORY_LIMIT") || slices.Contains(env, "CUDA_MPS_PIPE_DIRECTORY=/tmp/mine") {
		t.Errorf("a user's own limits are kept: %q", env)
	}
	if !capstest.Alive(dir, card) {
		t.Error("no daemon runs")
	}
	m.rt.Exit(id(1), 0, true)
	m.reported(1, completed)
	m.eventually("the daemon ended", func() bool { return !capstest.Alive(dir, card) })

	whole := assignment(2)
	whole.Gpus = []*nodev1.Share{{Uuid: card, MemMib: 7000, Milli: 1000, Exclusive: true}}
	m.leader.Assign(whole)
	m.reported(2, running)
	if env := strings.Join(m.rt.Launch(id(2)).Env, "\n"); strings.Contains(env, "CUDA_MPS") || capstest.Alive(dir, card) {
		t.Errorf("a job that has its card alone goes through a daemon: %s", env)
	}
}

func TestFaultOfAnMPSServer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		line   string
		states [2]nodev1.AttemptState
		says   [2]string
	}{
		{"of job 1", fmt.Sprintf("Device GPU-x from client process %d encountered a fatal exception", os.Getpid()),
			[2]nodev1.AttemptState{failed, lost}, [2]string{"its own fault on GPU", "by a fault of one of its clients, j1-a1"}},
		{"of nobody known", "Server entered FAULT state",
			[2]nodev1.AttemptState{lost, lost}, [2]string{"it is not known which", "it is not known which"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, dir := viaMPS(t)
			m := newMemRig(t, c)
			for job := range uint64(2) {
				m.shared(job+1, 2000)
				m.reported(job+1, running)
			}
			c1 := m.take(1, 1000)
			capstest.Fault(t, dir, sim.UUID("n1", 0), tc.line)
			for i, state := range tc.states {
				if got := m.reported(uint64(i)+1, state); !strings.Contains(got.Detail, tc.says[i]) || (got.Reason == "GPUNeighbour") != (state == lost) {
					t.Errorf("job %d: %v, want %q", i+1, got, tc.says[i])
				}
			}
			c1.Close() // a process goes with its job
			m.eventually("the daemon ended", func() bool { return !capstest.Alive(dir, sim.UUID("n1", 0)) })
		})
	}
}

// TestCrashBeforeTheFaultIsKnown: a job whose context went with the server may
// end before anybody has asked the daemon; that is not its failure.
func TestCrashBeforeTheFaultIsKnown(t *testing.T) {
	c, dir := viaMPS(t)
	m := newMemRig(t, c)
	m.shared(1, 2000)
	m.reported(1, running)
	capstest.Kill(t, dir, sim.UUID("n1", 0))
	m.rt.Exit(id(1), 1, true)
	if got := m.reported(1, lost); got.Reason != "GPUNeighbour" || !strings.Contains(got.Detail, "the MPS daemon is gone") {
		t.Errorf("got %v", got)
	}
}

// badLimiter is a driver that does not do what it is told.
type badLimiter struct{}

func (badLimiter) SetMemoryLimits(context.Context, string, string, caps.Limits) error { return nil }
func (badLimiter) MemoryLimits(context.Context, string, string) (caps.Limits, error) {
	return caps.Limits{Soft: 1, Hard: 1 << 20}, nil
}

func TestJobThatIsNotHeldDoesNotStart(t *testing.T) {
	c := patient()
	c.Choose = func(gpu.Card) caps.Choice { return caps.Choice{Mode: caps.Dmem} }
	c.Limiter = badLimiter{}
	m := newMemRig(t, c)
	m.shared(1, 2000)
	m.eventually("an end", func() bool { r := m.leader.Last(id(1)); return r != nil && r.State >= completed })
	got := m.leader.Last(id(1))
	if got.State == completed || !strings.Contains(got.Detail, "does not hold the job to its share") {
		t.Errorf("got %v", got)
	}
	if slices.Contains(m.rt.Calls(), "start j1-a1") {
		t.Errorf("it was started: %v", m.rt.Calls())
	}
}

// cutCards is a node with one card cut into instances and one that is whole.
type cutCards struct{ cards }

func (cutCards) Inventory(context.Context) ([]gpu.Card, error) {
	return []gpu.Card{
		{UUID: "GPU-1", Type: "A100-SXM4-40GB", MemMiB: 40_960, Driver: "570.1", MIG: gpu.ModeOn, Instances: []gpu.Instance{
			{UUID: "MIG-1", Profile: "1g.5gb", MemMiB: 4864}, {UUID: "MIG-2", Profile: "3g.20gb", MemMiB: 19_968},
		}},
		{UUID: "GPU-2", Index: 1, Type: "H100", MemMiB: 81_920, ReservedMiB: 500, Driver: "570.1"},
	}, nil
}

// TestInstancesAreOffered: each as a card of its own that one job has whole;
// each card says how it is shared, among whom, and why not better.
func TestInstancesAreOffered(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, dir: t.TempDir(), rt: agenttest.New(), leader: agenttest.NewLeader(t)}
	ch := caps.Chooser{Policy: caps.Policy{
		Allowed: []caps.Mode{caps.Dmem, caps.MIG, caps.MPS, caps.Watch},
		Scopes:  map[caps.Mode]cluster.Scope{caps.Watch: cluster.ScopeSameGroup},
	}}
	d := &devices{}
	d.set("GPU-1", "a card in MIG mode is given in parts only")
	ctx, cancel := context.WithCancel(context.Background())
	a, err := agent.New(ctx, agent.Config{
		Node: "n1", BootID: "boot", Dir: r.dir, Coordinators: []string{"leader"}, Dial: r.leader.Dial, Host: r.rt,
		GPUs: cutCards{}, Devices: d, MemCaps: agent.MemCaps{Choose: ch.Choose}, Users: users{}, CPUMilli: 8000, MemMiB: 1024,
		Grace: 50 * time.Millisecond, Heartbeat: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done // context.Canceled
	})
	r.eventually("a hello", func() bool { return r.leader.Hello() != nil })
	var got []string
	for _, g := range r.leader.Hello().Gpus {
		got = append(got, fmt.Sprintf("%s %s %d-%d %s %s; %s", g.Uuid, g.Type, g.MemMib, g.ReservedMib, g.CapMode, g.Scope, g.CapReason))
	}
	want := []string{
		"MIG-1 A100-SXM4-40GB.1g.5gb 4864-0 mig never; dmem: instances have memory of their own",
		"MIG-2 A100-SXM4-40GB.3g.20gb 19968-0 mig never; dmem: instances have memory of their own",
		"GPU-2 H100 81920-500 watch same-group; dmem: driver 570.1 is older than 615; mig: the card is not cut into instances; mps: nvidia-cuda-mps-control is not installed",
	}
	if !slices.Equal(got, want) {
		t.Errorf("offered\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	as := onCard(1, "MIG-2")
	as.Gpus[0].MemMib = 19_968
	r.leader.Assign(as)
	r.reported(1, running)
	if l := r.rt.Launch(id(1)); !slices.Contains(l.Env, "CUDA_VISIBLE_DEVICES=MIG-2") || !slices.Equal(l.CDIDevices, []string{"nvidia.com/gpu=MIG-2"}) {
		t.Errorf("launched with %q, devices %q", l.Env, l.CDIDevices)
	}
}
