package agent_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/gpu/sim"
	"github.com/berth-scheduler/berth/agent/gpu/sim/simclient"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/processrt"
	"github.com/berth-scheduler/berth/agent/soaktest"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestMain makes the test binary its own keeper of processes, and the jobs
// that the tests below run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "process-keeper":
			fs := flag.NewFlagSet("process-keeper", flag.ExitOnError)
			dir, parent := fs.String("dir", "", ""), fs.String("cgroup", "", "")
			_ = fs.Parse(os.Args[2:]) // exits on an error
			if err := processrt.KeeperMain(context.Background(), *dir, *parent, ""); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		case "play-grower":
			os.Exit(playGrower(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}

// playGrower takes memory in steps, as "MIB:STEP:PAUSE": steps of STEP MiB with
// PAUSE between them until it holds MIB, and then ends well. USR1 it notes and
// lives on.
func playGrower(form string) int {
	var total, step int64
	var pause string
	if _, err := fmt.Sscanf(strings.ReplaceAll(form, ":", " "), "%d %d %s", &total, &step, &pause); err != nil {
		fmt.Println(err)
		return 2
	}
	each, err := time.ParseDuration(pause)
	if err != nil {
		fmt.Println(err)
		return 2
	}
	sigs := make(chan os.Signal, 1)
	signal.Notify(sigs, syscall.SIGUSR1)
	cfg, err := simclient.FromEnv(os.Environ())
	if err != nil {
		fmt.Println(err)
		return 2
	}
	ctx := context.Background()
	c, err := simclient.Connect(ctx, cfg)
	for held := int64(0); err == nil && held < total; held += step {
		if _, err = c.Alloc(ctx, 0, step<<20); err == nil {
			fmt.Printf("holds %d MiB\n", held+step)
		}
		select {
		case <-sigs:
			fmt.Println("got USR1")
		case <-time.After(each):
		}
	}
	if err != nil {
		fmt.Println("torch.cuda.OutOfMemoryError: CUDA out of memory:", err)
		return simclient.ExitCode(err)
	}
	return 0
}

// cardsRig is an agent with real processes on simulated cards whose shares
// nobody enforces but the watch.
type cardsRig struct {
	t      *testing.T
	dir    string
	leader *agenttest.Leader
	rt     *processrt.Runtime
	caps   agent.MemCaps
	cards  int
	stop   func()
}

const cardMiB = 16 << 10

func newCardsRig(t *testing.T, c agent.MemCaps, cards int) *cardsRig {
	t.Helper()
	dir, err := os.MkdirTemp("", "cards") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	r := &cardsRig{t: t, dir: dir, leader: agenttest.NewLeader(t), caps: c, cards: cards}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.rt, err = processrt.Open(t.Context(), processrt.Config{
		Dir: filepath.Join(dir, "rt"), Exe: []string{os.Args[0], "process-keeper"},
		CgroupParent: fmt.Sprintf("/berth-test-%d", os.Getpid()), AllowUncapped: true, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	t.Cleanup(func() {
		r.stop()
		r.rt.Close()
		if err := processrt.StopKeeper(filepath.Join(dir, "rt")); err != nil {
			t.Logf("stop keeper: %v", err)
		}
		_ = os.RemoveAll(dir)
	})
	return r
}

// start runs an agent and its cards, as after a restart of the daemon.
func (r *cardsRig) start() {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	p, err := sim.New(sim.Config{
		Node: "n1", Specs: []sim.Spec{{Type: "A100-SXM4-80GB", Count: r.cards, MemMiB: cardMiB}},
		Socket: filepath.Join(r.dir, "cards"), Unenforced: true, Log: log,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a, err := agent.New(ctx, agent.Config{
		Node: "n1", BootID: "boot", Dir: r.dir, Coordinators: []string{"leader"}, Dial: r.leader.Dial, Host: r.rt,
		Users: rootUsers{}, GPUs: p, CapMode: "watch", CPUMilli: 64000, MemMiB: 64 << 10, Grace: 100 * time.Millisecond,
		Heartbeat: 50 * time.Millisecond, MemCaps: r.caps, Tail: asuser.Tail, Log: log,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			r.t.Errorf("agent: %v", err)
		}
		p.Close()
		r.stop = func() {}
	}
}

type rootUsers struct{}

func (rootUsers) Resolve(_, gid uint32, name string) (launcher.User, error) {
	return launcher.User{Name: name, Home: "/", Shell: "/bin/sh", Groups: []uint32{gid}}, nil
}

// submit assigns a grower with a share of a card.
func (r *cardsRig) submit(job uint64, card int, shareMiB int64, form string) {
	r.leader.Assign(&nodev1.Assignment{
		Job: job, Attempt: 1, Token: 100 + job, User: "root", Name: "grower", Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()),
		Command: [][]byte{[]byte(os.Args[0]), []byte("play-grower"), []byte(form)}, Dir: []byte(r.dir),
		Gpus: []*nodev1.Share{{Uuid: sim.UUID("n1", card), MemMib: shareMiB, Milli: 300}},
	})
}

func (r *cardsRig) until(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// ended waits for the last report of a job.
func (r *cardsRig) ended(job uint64) *nodev1.Report {
	r.t.Helper()
	var last *nodev1.Report
	r.until(fmt.Sprintf("job %d ended", job), func() bool {
		last = r.leader.Last(id(job))
		return last != nil && last.State >= completed
	})
	return last
}

func (r *cardsRig) output(job uint64) string {
	text, err := os.ReadFile(filepath.Join(r.dir, fmt.Sprintf("berth-%d.out", job)))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// pair runs a greedy job beside a modest one and reports whether the modest one
// came through and the greedy one was ended as OUT_OF_MEMORY. The greedy one
// takes 64 MiB every 20 ms, 3.2 GiB a second of a card of 16 GiB, from a share
// of 4 GiB; the modest one keeps asking for more all the time, up to its share.
func (r *cardsRig) pair(n, card int) (modest, greedy *nodev1.Report) {
	g, m := uint64(2*n+1), uint64(2*n+2)
	r.submit(m, card, 6<<10, "5000:50:40ms")
	r.submit(g, card, 4<<10, "1000000:64:20ms")
	return r.ended(m), r.ended(g)
}

// pairs runs n of them on cards that it keeps busy, and counts.
func (r *cardsRig) pairs(n int) (survived, ended int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	next := 0
	for card := range r.cards {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n {
					return
				}
				modest, greedy := r.pair(i, card)
				mu.Lock()
				if modest.State == completed {
					survived++
				} else {
					r.t.Logf("modest job %d: %v", 2*i+2, modest)
				}
				if greedy.State == oom && greedy.Usage.GpuOom && greedy.Usage.GpuMemPeakMib > 4<<10 {
					ended++
				} else {
					r.t.Logf("greedy job %d: %v", 2*i+1, greedy)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return survived, ended
}

// TestSoakGreedyBesideModest: under the watch alone a modest job comes through
// beside a greedy one at least 99 times of 100.
func TestSoakGreedyBesideModest(t *testing.T) {
	n := soaktest.Times(t, 5, 100)
	r := newCardsRig(t, agent.MemCaps{Grace: 500 * time.Millisecond}, min(n, 8))
	survived, ended := r.pairs(n)
	t.Logf("soak: %d of %d modest jobs survived beside a greedy one, %d greedy ones were ended as OUT_OF_MEMORY", survived, n, ended)
	if survived*100 < n*99 || ended != n {
		t.Errorf("%d of %d modest jobs survived, want 99 %%; %d greedy ones were ended as OUT_OF_MEMORY, want all", survived, n, ended)
	}
	last := r.leader.Last(id(1))
	for _, want := range []string{"more than its share of 4.0 GiB", "--gpu-mem"} {
		if !strings.Contains(last.Detail, want) {
			t.Errorf("detail %q lacks %q", last.Detail, want)
		}
	}
}

// TestEndOverCapSurvivesRestart: an agent that starts again goes on with the
// end of a job above its share, with one USR1 in all.
func TestEndOverCapSurvivesRestart(t *testing.T) {
	t.Parallel()
	watch := caps.WatchConfig{SlackMilli: 1050, For: 250 * time.Millisecond, FloorMiB: 0}
	r := newCardsRig(t, agent.MemCaps{Watch: watch, Grace: 3 * time.Second}, 1)
	r.submit(3, 0, 1<<10, "1000000:10:10ms")
	r.until("USR1", func() bool { return strings.Contains(r.output(3), "got USR1") })
	r.until("the note that it was sent", func() bool { // a crash before that would send another
		rec, _ := recorded(t, r.dir, id(3))
		return rec.Assignment.GetBreach().GetSent()
	})
	r.stop()
	r.start()
	got := r.ended(3)
	if got.State != oom || !got.Usage.GpuOom || got.Reason != "OutOfGPUMemory" || got.Usage.GpuMemPeakMib <= 1<<10 {
		t.Errorf("after a restart: %v", got)
	}
	if n := strings.Count(r.output(3), "got USR1"); n != 1 {
		t.Errorf("%d times USR1, want 1", n)
	}
}
