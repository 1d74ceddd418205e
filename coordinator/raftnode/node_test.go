package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestProposeIsAppliedEverywhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	lead := c.leader()
	ctx := t.Context()
	var want []string
	var last uint64
	for i := range 5 {
		op := fmt.Sprintf("op%d", i)
		want = append(want, op)
		index, res, err := lead.Propose(ctx, []byte(op))
		if err != nil || index <= last || res != i+1 {
			t.Fatalf("op %d: index %d after %d, result %v, err %v", i, index, last, res, err)
		}
		last = index
	}
	c.agree(want)
	if err := lead.VerifyLeader(ctx); err != nil {
		t.Error(err)
	}
	id, addr := c.follower().Leader()
	if id != lead.id || addr != lead.addr {
		t.Errorf("a follower names leader %q at %q, want %q at %q", id, addr, lead.id, lead.addr)
	}
	if !lead.IsLeader() || lead.AppliedIndex() < last || lead.Appended() == 0 || lead.LogBytes() == 0 || lead.Longest("append") == 0 {
		t.Errorf("%d of %d entries applied, %d bytes appended, the longest in %s; %d on the disk",
			lead.AppliedIndex(), last, lead.Appended(), lead.Longest("append"), lead.LogBytes())
	}
	ms := lead.Members()
	if len(ms) != 3 || slices.ContainsFunc(ms, func(m Member) bool { return !m.Voter || m.Addr == "" }) {
		t.Errorf("members %+v, want three voters", ms)
	}
}

func TestFollowerRefuses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	f := c.follower()
	if _, _, err := f.Propose(t.Context(), []byte("x")); Classify(err) != Refused || !errors.Is(err, ErrNotLeader) {
		t.Errorf("propose on a follower: %v", err)
	}
	if err := f.Barrier(t.Context()); !errors.Is(err, ErrNotLeader) {
		t.Errorf("barrier on a follower: %v", err)
	}
	if err := f.VerifyLeader(t.Context()); !errors.Is(err, ErrNotLeader) {
		t.Errorf("verify on a follower: %v", err)
	}
	lead := c.leader()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := lead.Propose(ended, []byte("x")); Classify(err) != Refused {
		t.Errorf("propose after the context ended: %v", err)
	}
	if _, _, err := lead.Propose(t.Context(), make([]byte, 5<<20)); Classify(err) != Refused || !errors.Is(err, ErrEntryTooLarge) {
		t.Errorf("propose 5 MiB: %v", err)
	}
	propose(t, lead, "ok")
	c.agree([]string{"ok"})
}

// TestLeaderKilled writes while the leader dies: what was acknowledged stays,
// in order, and nothing that was refused appears.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	lead := c.leader()
	var mu sync.Mutex
	acked, refusedOps := map[string]bool{}, map[string]bool{}
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n := lead.Node
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				op := fmt.Sprintf("w%d-%d", w, i)
				_, _, err := n.Propose(ctx, []byte(op))
				mu.Lock()
				switch Classify(err) {
				case Done:
					acked[op] = true
				case Refused:
					refusedOps[op] = true
				case Unknown:
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	waitFor(t, "some entries", func() bool { mu.Lock(); defer mu.Unlock(); return len(acked) > 100 })
	began := time.Now()
	kill(t, lead)
	wg.Wait()
	next := c.leader()
	t.Logf("%d acknowledged, next leader after %v", len(acked), time.Since(began))
	propose(t, next, "end")
	want := next.fsm.list()
	for op := range acked {
		if !slices.Contains(want, op) {
			t.Fatalf("%s was acknowledged and is lost", op)
		}
	}
	for op := range refusedOps {
		if slices.Contains(want, op) {
			t.Fatalf("%s was refused and is there", op)
		}
	}
	c.restart(lead)
	c.agree(want)
}

func TestAllDownAndBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	var want []string
	for round := range 3 {
		lead := c.leader()
		for i := range 10 {
			op := fmt.Sprintf("r%d-%d", round, i)
			propose(t, lead, op)
			want = append(want, op)
		}
		for _, m := range c.members {
			kill(t, m)
		}
		for _, m := range c.members {
			c.restart(m)
		}
	}
	c.leader()
	c.agree(want)
}

// TestLaggingFollowerGetsSnapshot stops a follower until the log no longer
// holds what it lacks.
func TestLaggingFollowerGetsSnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *Config) { cfg.TrailingLogs, cfg.SnapshotThreshold = 4, 1<<30 })
	f := c.follower()
	kill(t, f)
	lead := c.leader()
	var want []string
	for i := range 50 {
		op := fmt.Sprintf("op%d", i)
		propose(t, lead, op)
		want = append(want, op)
	}
	if err := lead.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	c.restart(f)
	c.agree(want)
	if f.fsm.restores != 1 {
		t.Errorf("follower restored %d snapshots, want 1", f.fsm.restores)
	}
	// And what it has now on its disk is sound.
	propose(t, lead, "more")
	want = append(want, "more")
	c.agree(want)
	kill(t, f)
	if err := Preflight(f.dir); err != nil {
		t.Fatal(err)
	}
	c.restart(f)
	c.agree(want)
}

// TestCloseHandsOver closes the leader of a healthy cluster: the next one is
// there at once, without waiting for a timeout.
func TestCloseHandsOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *Config) {
		const long = 30 * time.Second // the leader stays however busy the machine is
		cfg.Timing.HeartbeatTimeout, cfg.Timing.ElectionTimeout, cfg.Timing.LeaderLeaseTimeout = long, long, long
	})
	c.stand(c.members[0])
	lead := c.leader()
	propose(t, lead, "x")
	c.agree([]string{"x"})
	for _, m := range c.members { // from now on nobody would miss a leader for an hour
		if m == lead {
			continue
		}
		rc := m.raft.ReloadableConfig()
		rc.HeartbeatTimeout, rc.ElectionTimeout = time.Hour, time.Hour
		if err := m.raft.ReloadConfig(rc); err != nil {
			t.Fatal(err)
		}
	}
	n := lead.Node
	lead.Node = nil
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c.leader()
	if err := n.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if _, _, err := n.Propose(t.Context(), []byte("y")); !errors.Is(err, ErrClosed) || Classify(err) != Refused {
		t.Errorf("propose after close: %v", err)
	}
	if _, open := <-n.LeaderChanges(); open {
		t.Error("leader changes are not closed")
	}
}

func TestTransferLeadership(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	lead := c.leader()
	term := lead.Term()
	if err := lead.TransferLeadership(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lead.IsLeader() {
		t.Error("still leader after the transfer")
	}
	next := c.leader()
	if next == lead || next.Term() <= term {
		t.Errorf("next leader %s in term %d, was %s in %d", next.id, next.Term(), lead.id, term)
	}
}

func TestNotices(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		in, want []bool
	}{
		{"one", []bool{true}, []bool{true}},
		{"gain and loss", []bool{true, false}, []bool{true, false}},
		{"the reader never knew of the first gain", []bool{true, false, true}, []bool{true}},
		{"the reader knows a gain and must hear of the loss", []bool{false, true, false, true}, []bool{false, true}},
		{"lost in the end", []bool{false, true, false}, []bool{false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var q notices
			for _, b := range tc.in {
				q.add(b)
			}
			if !slices.Equal(q.pending, tc.want) {
				t.Errorf("%v became %v, want %v", tc.in, q.pending, tc.want)
			}
		})
	}
}

// TestSlowReaderHoldsNothingUp lets nobody read the notices of leadership.
func TestSlowReaderHoldsNothingUp(t *testing.T) {
	t.Parallel()
	c := &testCluster{t: t}
	l := listen(t, "127.0.0.1:0")
	m := &member{id: "solo", addr: l.Addr().String(), dir: t.TempDir(), fatal: make(chan error, 1)}
	c.members = []*member{m}
	n, err := Open(c.config(m, l))
	if err != nil {
		t.Fatal(err)
	}
	m.Node = n
	propose(t, c.leader(), "x")
	if got := <-n.LeaderChanges(); !got {
		t.Error("first notice is a loss")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCloseLeavesNothing counts goroutines, so it runs alone.
func TestCloseLeavesNothing(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	c := newCluster(t, 3, nil)
	propose(t, c.leader(), "x")
	c.agree([]string{"x"})
	var wg sync.WaitGroup
	for _, m := range c.members {
		n := m.Node
		m.Node = nil
		wg.Go(func() {
			if err := n.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	wg.Wait()
	goleak.VerifyNone(t, ignore)
}

// TestFailover kills leaders and measures until the next entry is committed. On a
// busy machine some take longer than is promised, but not each of five.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		timing Timing
		limit  time.Duration
	}{
		{"default", DefaultTiming(), 10 * time.Second},
		{"fast", FastTiming(), 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, func(cfg *Config) { cfg.Timing = tc.timing })
			for range 5 {
				lead := c.leader()
				propose(t, lead, "x")
				kill(t, lead)
				began := time.Now()
				propose(t, c.leader(), "y")
				took := time.Since(began)
				t.Logf("fail-over took %v, promised %v", took, tc.limit)
				if took <= tc.limit {
					return
				}
				c.restart(lead)
			}
			t.Error("no fail-over was as fast as is promised")
		})
	}
}
