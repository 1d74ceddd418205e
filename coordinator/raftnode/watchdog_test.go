package raftnode

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-scheduler/berth/cluster/wait"
)

// dogWorld is a watchdog and what it meets.
type dogWorld struct {
	w      *watchdog
	hang   chan struct{}
	fatal  chan error
	handed chan struct{}
	slow   []time.Duration
}

func newDogWorld() *dogWorld {
	d := &dogWorld{hang: make(chan struct{}), fatal: make(chan error, 1), handed: make(chan struct{}, 1)}
	d.w = &watchdog{
		dir: "/d", limit: 10 * time.Second, every: time.Second, ops: newOpTimes(),
		handOver: func(ctx context.Context) error {
			// It hangs as well, as the loop of a leader does that waits for its disk.
			<-ctx.Done()
			d.handed <- struct{}{}
			return ctx.Err()
		},
		fatal: func(err error) { d.fatal <- err },
		probe: func() error { return nil },
		slow:  func(_ uint64, age time.Duration) { d.slow = append(d.slow, age) },
	}
	return d
}

// TestWatchdog runs on fake time.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		setup func(*dogWorld)
		want  string        // part of the error, empty for none
		after time.Duration // least time until then
	}{
		{"all is well", func(*dogWorld) {}, "", 0},
		{"probe hangs", func(w *dogWorld) { w.w.probe = func() error { <-w.hang; return nil } }, "probe the disk in /d hangs", 11 * time.Second},
		{"probe fails", func(w *dogWorld) { w.w.probe = func() error { return errors.New("read-only file system") } }, "probe the disk of /d: read-only", time.Second},
		{"the disk is full", func(w *dogWorld) {
			w.w.probe = func() error { return &os.PathError{Op: "write", Path: "/d/probe", Err: syscall.ENOSPC} }
		}, "", 0},
		{"write hangs", func(w *dogWorld) { w.w.ops.begin(opAppend) }, "append entries in /d hangs", 10 * time.Second},
		{"write is slow but ends", func(w *dogWorld) {
			done := w.w.ops.begin(opAppend)
			time.AfterFunc(9*time.Second, done)
		}, "", 0},
		{"state machine hangs", func(w *dogWorld) { w.w.ops.begin(opApply) }, "the state machine hangs", 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newDogWorld()
				fatal, handed, began := w.fatal, w.handed, time.Now()
				tc.setup(w)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { w.w.run(ctx); close(ended) }()
				select {
				case err := <-fatal:
					took := time.Since(began)
					if tc.want == "" || !strings.Contains(err.Error(), tc.want) {
						t.Errorf("after %v: %v, want %q", took, err, tc.want)
					}
					if took < tc.after || took > tc.after+4*time.Second {
						t.Errorf("noticed after %v, want about %v", took, tc.after)
					}
					if strings.Contains(tc.want, "hangs") && len(handed) == 0 {
						t.Error("leadership was not handed over first")
					}
				case <-time.After(time.Minute):
					if tc.want != "" {
						t.Errorf("nothing noticed, want %q", tc.want)
					}
				}
				cancel()
				close(w.hang)
				<-ended
			})
		})
	}
}

// TestPauseOfTheMachineIsNoHang: a machine that stands still for a minute while entries
// are written ends no coordinator; a write that hangs after that does.
func TestPauseOfTheMachineIsNoHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDogWorld()
		look := func() error {
			d.w.looks()
			return d.w.check()
		}
		d.w.ops.begin(opAppend)
		for range 2 {
			for range 4 {
				time.Sleep(d.w.every)
				if err := look(); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute) // nobody looks
			if err := look(); err != nil {
				t.Fatal(err)
			}
			if _, age := d.w.ops.oldest(); age > 10*time.Second {
				t.Fatalf("it is under way for %s of a process that ran less", age)
			}
		}
		time.Sleep(d.w.every)
		if err := look(); err == nil || !strings.Contains(err.Error(), "append entries in /d hangs") {
			t.Errorf("after eleven seconds of a hang: %v", err)
		}
	})
}

// TestSlowReplayIsWaitedFor: an entry that is in the log at the start is told of
// and not cut short; the same entry, were it new, ends the process.
func TestSlowReplayIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		entry uint64
		ends  bool
	}{{"last of the log", 7, false}, {"new", 8, true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newDogWorld()
				block := make(chan struct{})
				f := timed(&listFSM{block: block}, w.w.ops, 7)
				applied := make(chan struct{})
				go func() { f.Apply(&raft.Log{Index: tc.entry}); close(applied) }()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { w.w.run(ctx); close(ended) }()
				time.Sleep(35 * time.Second) // virtual
				synctest.Wait()
				if got := len(w.fatal) > 0; got != tc.ends {
					t.Errorf("ended is %t, want %t", got, tc.ends)
				}
				if told := len(w.slow); !tc.ends && told != 3 {
					t.Errorf("told %d times in 35 s of what takes longer than 10, want 3", told)
				}
				cancel()
				close(block)
				<-applied
				<-ended
			})
		})
	}
}

// stall proposes an entry to a node that hangs, until it is taken, since a busy machine may
// refuse some, and returns why the node ended, and what was answered by then.
func stall(t *testing.T, m *member) (ended, answer error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, _, err := m.Propose(ctx, []byte("x"))
		for Classify(err) == Refused && wait.Sleep(ctx, 10*time.Millisecond) {
			_, _, err = m.Propose(ctx, []byte("x"))
		}
		answered <- err
	}()
	ended = <-m.fatal
	cancel()
	return ended, <-answered
}

// TestHungDiskEndsTheLeader hangs the leader's log writes: it gives up, though
// its heartbeats go on, and the others go on without it once it ended.
func TestHungDiskEndsTheLeader(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	var sick atomic.Bool
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.StallLimit = 2 * time.Second
		if cfg.ID != "c0" {
			return
		}
		cfg.hooks.beforeWrite = func(string) error {
			if sick.Load() {
				<-hang
			}
			return nil
		}
	})
	m := c.members[0]
	waitFor(t, "it to lead", func() bool {
		if lead := c.leader(); lead != m {
			_ = lead.TransferLeadership(t.Context())
		}
		return m.IsLeader()
	})
	propose(t, m, "kept")
	c.agree([]string{"kept"})
	sick.Store(true)
	err, answer := stall(t, m)
	requireParts(t, err, []string{"the disk does not answer"})
	if Classify(answer) != Unknown && (answer == nil || m.IsLeader()) { // others may have missed it on a busy machine
		t.Errorf("propose on a hung disk: %v", answer)
	}
	// What the process's end would do.
	_ = m.trans.Close()
	m.closing.Store(true)
	n := m.Node
	m.Node = nil
	propose(t, c.leader(), "after")
	close(hang)
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := n.stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// batchFSM is a listFSM that takes many entries at once.
type batchFSM struct {
	listFSM
	batches atomic.Int64
}

func (f *batchFSM) ApplyBatch(ls []*raft.Log) []any {
	f.batches.Add(1)
	out := make([]any, len(ls))
	for i, l := range ls {
		if l.Type == raft.LogCommand {
			out[i] = f.Apply(l)
		}
	}
	return out
}

func TestBatchingFSM(t *testing.T) {
	t.Parallel()
	f := &batchFSM{}
	c, _ := solo(t, func(cfg *Config) { cfg.FSM = f })
	lead := c.leader()
	if _, res, err := lead.Propose(t.Context(), []byte("x")); err != nil || res != 1 {
		t.Errorf("result %v, err %v", res, err)
	}
	if f.batches.Load() == 0 || lead.Longest("apply") == 0 {
		t.Error("it was not given batches, or they were not timed")
	}
}

func TestHungStateMachineIsNoticed(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	c, m := solo(t, func(cfg *Config) {
		cfg.StallLimit = 2 * time.Second
		cfg.FSM.(*listFSM).block = hang
	})
	waitFor(t, "a leader", m.IsLeader)
	err, answer := stall(t, m)
	requireParts(t, err, []string{"the state machine hangs"})
	if Classify(answer) != Unknown {
		t.Errorf("propose: %v", answer)
	}
	close(hang)
	c.agree([]string{"x"})
}

func TestOperationsAreMeasured(t *testing.T) {
	t.Parallel()
	c, _ := solo(t, nil)
	lead := c.leader()
	was := lead.Appended()
	index, _, err := lead.Propose(t.Context(), bytes.Repeat([]byte("x"), 1000))
	if err != nil {
		t.Fatal(err)
	}
	if got := lead.Appended() - was; got < 1000 || got > 1000+64 {
		t.Errorf("%d bytes were appended for an entry of 1000", got)
	}
	for _, kind := range Operations() {
		if took, of := lead.Longest(kind), slices.Contains([]string{"append", "apply", "vote"}, kind); of && took == 0 || !of && kind != "probe" && took != 0 {
			t.Errorf("%s took %v before the snapshot", kind, took)
		}
	}
	if err := lead.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	if lead.Longest("capture") == 0 || lead.Longest("snapshot") == 0 || lead.SnapshotIndex() < index {
		t.Errorf("a snapshot up to %d took %v and %v, want one up to %d", lead.SnapshotIndex(), lead.Longest("capture"), lead.Longest("snapshot"), index)
	}
}
