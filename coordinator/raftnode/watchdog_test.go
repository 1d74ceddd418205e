package raftnode

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchdog runs on fake time.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	type world struct {
		w               *watchdog
		hang            chan struct{}
		commit, applied atomic.Uint64
	}
	for _, tc := range []struct {
		name  string
		setup func(*world)
		want  string        // part of the error, empty for none
		after time.Duration // least time until then
	}{
		{"all is well", func(*world) {}, "", 0},
		{"idle with nothing committed", func(w *world) { w.commit.Store(0) }, "", 0},
		{"probe hangs", func(w *world) { w.w.probe = func() error { <-w.hang; return nil } }, "probe the disk in /d hangs", 11 * time.Second},
		{"probe fails", func(w *world) { w.w.probe = func() error { return errors.New("read-only file system") } }, "probe the disk of /d: read-only", time.Second},
		{"write hangs", func(w *world) { w.w.ops.begin(opAppend) }, "append entries in /d hangs", 10 * time.Second},
		{"write is slow but ends", func(w *world) {
			done := w.w.ops.begin(opAppend)
			time.AfterFunc(9*time.Second, done)
		}, "", 0},
		{"state machine hangs", func(w *world) { w.commit.Store(9) }, "the state machine is at entry 7", 10 * time.Second},
		{"state machine is behind but moves", func(w *world) {
			w.commit.Store(1 << 40)
			probe := w.w.probe
			w.w.probe = func() error { w.applied.Add(1); return probe() }
		}, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fatal := make(chan error, 1)
				handed := make(chan time.Duration, 1)
				w := &world{hang: make(chan struct{})}
				w.commit.Store(7)
				w.applied.Store(7)
				began := time.Now()
				w.w = &watchdog{
					dir: "/d", limit: 10 * time.Second, every: time.Second, ops: newOpTimes(),
					progress: func() (uint64, uint64) { return w.commit.Load(), w.applied.Load() },
					handOver: func(ctx context.Context) error {
						// It hangs as well, as the loop of a leader does that waits for its disk.
						<-ctx.Done()
						handed <- time.Since(began)
						return ctx.Err()
					},
					fatal: func(err error) { fatal <- err },
					probe: func() error { return nil },
				}
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
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := m.Propose(ctx, []byte("x")); Classify(err) != Unknown {
		t.Errorf("propose on a hung disk: %v", err)
	}
	requireParts(t, <-m.fatal, []string{"the disk does not answer"})
	// What the process's end would do.
	_ = m.trans.Close()
	m.closing.Store(true)
	n := m.Node
	m.Node = nil
	propose(t, c.leader(), "after")
	close(hang)
	ctx, cancel = context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := n.stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}
