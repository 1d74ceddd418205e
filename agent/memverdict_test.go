package agent_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/gpu/sim"
	"github.com/berth-scheduler/berth/agent/gpu/sim/simclient"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// memRig is an agent with a fake runtime and one simulated card of 8,000 MiB
// whose shares are not enforced; the test plays the jobs' processes.
type memRig struct {
	*rig
	socket string
	tails  chan string // what the end of the next output says
	cards  *counted
	// seen is how many samples the watch has seen.
	seen atomic.Int64
}

// counted are cards that know how often they were asked.
type counted struct {
	*sim.Provider
	asked atomic.Int64
}

func (c *counted) Usage(ctx context.Context) ([]gpu.Usage, error) {
	us, err := c.Provider.Usage(ctx)
	c.asked.Add(1)
	return us, err
}

func newMemRig(t *testing.T, c agent.MemCaps) *memRig {
	t.Helper()
	t.Parallel()
	dir, err := os.MkdirTemp("", "mem")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &memRig{rig: &rig{t: t, dir: dir, rt: agenttest.New(), leader: agenttest.NewLeader(t)}, socket: filepath.Join(dir, "cards"), tails: make(chan string, 10)}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	p, err := sim.New(sim.Config{Node: "n1", Specs: []sim.Spec{{Type: "T4", Count: 1, MemMiB: 8000}}, Socket: m.socket, Unenforced: true})
	if err != nil {
		t.Fatal(err)
	}
	m.cards = &counted{Provider: p}
	ctx, cancel := context.WithCancel(context.Background())
	a, err := agent.New(ctx, agent.Config{
		Node: "n1", BootID: "boot", Dir: dir, Coordinators: []string{"leader"}, Dial: m.leader.Dial, Host: m.rt, GPUs: m.cards, CapMode: "watch",
		Users: users{}, CPUMilli: 8000, MemMiB: 1024, Grace: 50 * time.Millisecond, Heartbeat: 20 * time.Millisecond, Log: log, MemCaps: c,
		UsageObservers: []func(time.Time, []gpu.Usage){func(time.Time, []gpu.Usage) { m.seen.Add(1) }},
		// The processes on the card are the test's own and outlive the job.
		Health: agent.HealthConfig{Within: 20 * time.Millisecond},
		Tail: func(_ context.Context, l *launch.Launch, path string, _ int64) ([]byte, error) {
			if l.UID != 1000 || !strings.HasPrefix(path, "/home/alice/run/") {
				t.Errorf("reads %s as %d", path, l.UID)
			}
			select {
			case s := <-m.tails:
				return []byte(s), nil
			default:
				return nil, os.ErrNotExist
			}
		},
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
		p.Close()
	})
	return m
}

// shared assigns a job with a share of the card.
func (m *memRig) shared(job uint64, mib int64) {
	as := assignment(job)
	as.Gpus = []*nodev1.Share{{Uuid: sim.UUID("n1", 0), MemMib: mib, Milli: 200}}
	m.leader.Assign(as)
}

// take has a process of the job hold MiB in all, its context included, and
// waits until the watch has seen it.
func (m *memRig) take(job uint64, mib int64) *simclient.Client {
	m.t.Helper()
	c, err := simclient.Connect(m.t.Context(), simclient.Config{Socket: m.socket, Attempt: id(job).String(), Cards: []string{sim.UUID("n1", 0)}})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() })
	if _, err := c.Alloc(m.t.Context(), 0, mib<<20-c.Cards()[0].ContextBytes); err != nil {
		m.t.Fatal(err)
	}
	m.samples(2)
	return c
}

// samples waits until the watch has seen so many that were begun after now.
func (m *memRig) samples(n int64) {
	m.t.Helper()
	from := m.seen.Load()
	m.eventually("the watch looks", func() bool { return m.seen.Load() > from+n }) // one may have been under way
}

// patient is a watch that lets tests take more than a share for a while.
func patient() agent.MemCaps {
	return agent.MemCaps{Watch: caps.WatchConfig{SlackMilli: 1050, For: time.Hour}}
}

const torchOOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
const smallOOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB\n"

func TestGPUMemoryVerdicts(t *testing.T) {
	for _, tc := range []struct {
		name          string
		held, other   int64 // of shares of 2,000 MiB each; other 0 is alone
		tail          string
		code          int
		state         nodev1.AttemptState
		reason, words string
		learned       bool
	}{
		{"message and use near the cap", 1950, 0, torchOOM, 1, oom, "OutOfGPUMemory", "held 1.9 GiB at most and its share is 2.0 GiB; ask for --gpu-mem 4608MiB", true},
		{"message of one allocation above the cap", 1000, 0, torchOOM, 1, oom, "OutOfGPUMemory", "an allocation of 2.0 GiB on the GPU was refused; it held 1000 MiB at most and its share is 2.0 GiB; ask for --gpu-mem 3584MiB", true},
		{"message alone", 1000, 0, smallOOM, 1, failed, "NonZeroExitCode", `its output says "torch.cuda.OutOfMemoryError`, false},
		{"use alone", 1950, 0, "Traceback: KeyError\n", 3, failed, "NonZeroExitCode", "exit code 3", false},
		{"message, near the cap, and a good end", 1950, 0, torchOOM, 0, completed, "", "", false},
		{"refused for a neighbour above its share", 1000, 3000, smallOOM, 1, lost, "GPUNeighbour", "while j2-a1 held more than its share", false},
		{"refused at its own cap, beside one above its share", 1950, 3000, torchOOM, 1, oom, "OutOfGPUMemory", "held 1.9 GiB at most and its share is 2.0 GiB", true},
		{"a neighbour within its share", 1000, 1900, smallOOM, 1, failed, "NonZeroExitCode", "held only 1000 MiB", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMemRig(t, patient())
			m.shared(1, 2000)
			m.reported(1, running)
			if tc.other > 0 {
				m.shared(2, 2000)
				m.reported(2, running)
				m.take(2, tc.other)
			}
			m.take(1, tc.held)
			m.tails <- tc.tail
			m.rt.Exit(id(1), tc.code, true)
			got := m.reported(1, tc.state)
			if got.Reason != tc.reason || !strings.Contains(got.Detail, tc.words) || got.Usage.GpuOom != tc.learned {
				t.Errorf("got %v, want reason %q and %q", got, tc.reason, tc.words)
			}
			if got.Exit.GetCode() != int32(tc.code) {
				t.Errorf("exit %v", got.Exit)
			}
		})
	}
}

// TestStartWaitsForItsMemory: what a share promises must be free when an
// attempt starts; when it stays taken the job goes back.
func TestStartWaitsForItsMemory(t *testing.T) {
	m := newMemRig(t, patient())
	m.shared(1, 2000)
	m.reported(1, running)
	m.take(1, 2000)
	c := m.take(1, 1400) // of a share of 2,000, and not so much at once that the card is nearly full
	before := m.cards.asked.Load() - m.seen.Load()
	m.shared(2, 5000)
	// One answer may be on its way to the watch; the others are for the start.
	m.eventually("the start looks for its memory twice", func() bool { return m.cards.asked.Load()-m.seen.Load() > before+2 })
	if calls := m.rt.Calls(); len(calls) != 2 {
		t.Errorf("job 2 was begun without its memory: %v", calls)
	}
	c.Close()
	m.reported(2, running)
}

func TestStartGivesUpOnMemoryThatStaysTaken(t *testing.T) {
	caps := patient()
	caps.Busy = 300 * time.Millisecond
	m := newMemRig(t, caps)
	m.shared(1, 2000)
	m.reported(1, running)
	m.take(1, 2000)
	m.take(1, 1400)
	m.shared(2, 5000)
	if got := m.reported(2, lost); got.Reason != "GPUNeighbour" || !strings.Contains(got.Detail, "4154 MiB free, the share is 5000 MiB") {
		t.Errorf("got %v", got)
	}
	if m.rt.Phase(id(2)) != runtime.Absent {
		t.Error("it was begun")
	}
}
