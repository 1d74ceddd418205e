//go:build linux && cgo

package nvmlproc

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/soaktest"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

type anyone struct{}

func (anyone) Resolve(uint32, uint32, string) (launcher.User, error) {
	return launcher.User{Name: "anna", Home: "/", Shell: "/bin/sh"}, nil
}

// cardStates is the state of each card in the newest hello.
func cardStates(l *agenttest.Leader) []nodev1.GPUState {
	var out []nodev1.GPUState
	for _, g := range l.Hello().GetGpus() {
		out = append(out, g.State)
	}
	return out
}

// TestSoakHungDriver has the driver of an agent with a job hang for ever: the
// heartbeats go on, the leader learns that the cards are unknown, the job is
// left alone, and a driver that answers again heals them. The full form keeps
// to the deadlines of a real node: unknown within 20 s.
func TestSoakHungDriver(t *testing.T) {
	t.Parallel()
	cfg, atMost, beat, apart := quick(), time.Minute, 100*time.Millisecond, time.Minute
	if os.Getenv(soaktest.Env) != "" {
		cfg, atMost, beat, apart = Config{}, 20*time.Second, 2*time.Second, 5*time.Second
	}
	times := soaktest.Times(t, 1, 3)
	n := newNode(t, cfg, cardA+cardB)
	l, rt := agenttest.NewLeader(t), agenttest.New()
	ctx, cancel := context.WithCancel(context.Background())
	a, err := agent.New(ctx, agent.Config{
		Node: "n1", BootID: "boot", Dir: t.TempDir(), Coordinators: []string{"leader"}, Dial: l.Dial, Host: rt, GPUs: n, CapMode: "none",
		Users: anyone{}, CPUMilli: 8000, MemMiB: 1024, Heartbeat: beat, Log: n.cfg.Log,
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
	job := cluster.AttemptID{Job: 1, No: 1}
	l.Assign(&nodev1.Assignment{Job: 1, Attempt: 1, Token: 5, Uid: 1000, Gid: 1000, User: "anna", Command: [][]byte{[]byte("/bin/x")}, Dir: []byte("/"),
		CpuMilli: 1000, MemMib: 100, Gpus: []*nodev1.Share{{Uuid: "GPU-aaaa", MemMib: 1000, Exclusive: true}}})
	within(t, "the job runs", func() bool { r := l.Last(job); return r != nil && r.State == nodev1.AttemptState_ATTEMPT_STATE_RUNNING })

	const unknown = nodev1.GPUState_GPU_STATE_UNKNOWN
	for range times {
		within(t, "the cards are sound", func() bool { s := cardStates(l); return len(s) == 2 && !slices.Contains(s, unknown) })
		n.write(cardA + cardB + "hang nvmlDeviceGetMemoryInfo_v2\n")
		began := time.Now()
		for !slices.Equal(cardStates(l), []nodev1.GPUState{unknown, unknown}) {
			if time.Since(began) > atMost {
				t.Fatalf("%v after the driver hangs the leader knows %v", atMost, cardStates(l))
			}
			time.Sleep(5 * time.Millisecond)
		}
		took := time.Since(began)
		unknownAt := time.Now()
		var beats []time.Time // since the driver hangs
		within(t, "heartbeats go on", func() bool {
			beats = slices.DeleteFunc(l.Heartbeats(), func(at time.Time) bool { return at.Before(began) })
			return len(slices.DeleteFunc(slices.Clone(beats), func(at time.Time) bool { return at.Before(unknownAt) })) >= 3
		})
		gap := time.Duration(0)
		for i := 1; i < len(beats); i++ {
			gap = max(gap, beats[i].Sub(beats[i-1]))
		}
		t.Logf("soak: unknown after %v; %d heartbeats meanwhile, at most %v apart", took.Round(time.Millisecond), len(beats), gap.Round(time.Millisecond))
		if gap > apart {
			t.Errorf("heartbeats stood still for %v", gap)
		}
		n.write(cardA + cardB)
		within(t, "the cards heal", func() bool { return !slices.Contains(cardStates(l), unknown) })
	}
	if r := l.Last(job); r.State != nodev1.AttemptState_ATTEMPT_STATE_RUNNING || slices.ContainsFunc(rt.Calls(), func(c string) bool { return c != "create j1-a1" && c != "start j1-a1" }) {
		t.Errorf("the job was touched: %v, %v", r, rt.Calls())
	}
}
