package fsm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// endedLog is a log whose jobs end by cancels, several an entry and in any
// order, with a snapshot after each entry.
type endedLog struct {
	entries [][]byte
	snaps   [][]byte      // snaps[i] is of after i entries
	ends    []*endedAt    // all, in order
	keep    uint32        // how many finished jobs are kept
	last    cluster.JobID // highest id
}

type endedAt struct {
	index uint64
	job   cluster.JobID
}

func drawEndedLog(t *rapid.T) *endedLog {
	l := &endedLog{keep: uint32(rapid.IntRange(1, 6).Draw(t, "keep")), snaps: [][]byte{nil}}
	m := newMachine(t)
	var open []cluster.JobID
	put := func(cmds ...*logv1.Command) {
		m.index++
		m.now = m.now.Add(time.Second)
		data := encode(t, testTerm, m.now, cmds...)
		applyTo(t, m.f, m.index, testTerm, data)
		l.entries, l.snaps = append(l.entries, data), append(l.snaps, snapshotOf(t, m.f))
	}
	put(initCmd("c1", l.keep))
	for range rapid.IntRange(1, 25).Draw(t, "entries") {
		if n := rapid.IntRange(0, 4).Draw(t, "new"); n > 0 {
			specs := make([]*cluster.Spec, n)
			for i := range specs {
				specs[i] = spec(0)
				open = append(open, l.last+1+cluster.JobID(i))
			}
			put(submitCmd(l.last+1, fmt.Sprintf("request-%012d", l.last), 1000, specs...))
			l.last += cluster.JobID(n)
		}
		var cmds []*logv1.Command
		var now []*endedAt
		for range rapid.IntRange(0, min(4, len(open))).Draw(t, "ends") {
			k := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			cmds = append(cmds, cancelCmd(open[k], 1000))
			now = append(now, &endedAt{m.index + 1, open[k]})
			open = slices.Delete(open, k, k+1)
		}
		slices.SortFunc(now, func(a, b *endedAt) int { return int(a.job) - int(b.job) })
		l.ends = append(l.ends, now...)
		put(cmds...)
	}
	return l
}

// keeper reads the feed as who keeps history does.
type keeper struct {
	got     []*endedAt
	missed  []gap
	after   uint64
	durable int // how many of got, and of missed, survive a crash
	missOK  int
	acked   uint64
}

func (k *keeper) read(t *rapid.T, f *FSM, limit int) bool {
	e := f.Ended(k.after, limit)
	switch {
	case e.UpTo < k.after:
		t.Fatalf("the feed went back from %d to %d", k.after, e.UpTo)
	case e.Missed && len(e.Jobs) > 0:
		t.Fatalf("missed with %d jobs", len(e.Jobs))
	case e.Missed:
		k.missed = append(k.missed, gap{k.after, e.UpTo})
	}
	for _, j := range e.Jobs {
		if j.Revision <= k.after || j.Revision > e.UpTo || !j.State.Terminal() {
			t.Fatalf("job %d ended at %d in state %v, asked for %d to %d", j.ID, j.Revision, j.State, k.after, e.UpTo)
		}
		k.got = append(k.got, &endedAt{j.Revision, j.ID})
	}
	moved := e.UpTo > k.after
	k.after = e.UpTo
	return moved
}

func (k *keeper) save(f *FSM) {
	k.durable, k.missOK, k.acked = len(k.got), len(k.missed), k.after
	f.HoldEnded(k.acked)
}

func (k *keeper) crash() {
	k.got, k.missed, k.after = k.got[:k.durable], k.missed[:k.missOK], k.acked
}

// check compares with what ended until k.after: each job once and in order, or
// within what was missed.
func (k *keeper) check(t *rapid.T, l *endedLog) {
	next := 0
	for _, e := range l.ends {
		if e.index > k.after {
			break
		}
		if next < len(k.got) && *k.got[next] == *e {
			next++
			continue
		}
		if !slices.ContainsFunc(k.missed, func(g gap) bool { return e.index > g.from && e.index <= g.to }) {
			t.Fatalf("job %d, which ended at %d, was neither given nor missed (at %d)", e.job, e.index, k.after)
		}
	}
	if next != len(k.got) {
		t.Fatalf("job %d at index %d was given out of turn, or twice", k.got[next].job, k.got[next].index)
	}
}

// TestEndedProperties: whatever ends, is forgotten, restored and replayed, who
// keeps history gets each ended job once, in order, or is told what it missed;
// and without a restore it misses nothing.
func TestEndedProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := drawEndedLog(t)
		k, f, at, restores := &keeper{}, New(Options{}), 0, 0
		f.HoldEnded(0)
		restore := func(to int) {
			at = to
			if to == 0 {
				return
			}
			restores++
			if err := f.Restore(io.NopCloser(bytes.NewReader(l.snaps[to]))); err != nil {
				t.Fatalf("restore: %v", err)
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			default:
				for range rapid.IntRange(1, 5).Draw(t, "apply") {
					if at < len(l.entries) {
						at++
						applyTo(t, f, uint64(at), testTerm, l.entries[at-1])
					}
				}
			case 4, 5:
				k.read(t, f, rapid.IntRange(0, 4).Draw(t, "limit"))
			case 6, 7:
				k.save(f)
			case 8: // a snapshot is installed
				restore(rapid.IntRange(at, len(l.entries)).Draw(t, "install"))
			case 9: // a crash: the log begins at some snapshot again
				k.crash()
				f = New(Options{})
				f.HoldEnded(k.acked)
				restore(rapid.IntRange(0, at).Draw(t, "snapshot"))
			}
			k.check(t, l)
		}
		for at < len(l.entries) {
			at++
			applyTo(t, f, uint64(at), testTerm, l.entries[at-1])
		}
		for k.read(t, f, 3) {
			k.check(t, l)
		}
		if k.check(t, l); k.after != uint64(at) {
			t.Fatalf("the feed ends at %d, the log at %d", k.after, at)
		}
		if restores == 0 && len(k.missed) > 0 {
			t.Fatalf("missed %v though nothing was restored", k.missed)
		}
	})
}

// TestEndedWithoutHold: who comes late is told, and goes on from there.
func TestEndedWithoutHold(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(initCmd("c1", 2))
	for range 5 {
		m.must(cancelCmd(m.submit(spec(0)), 1000))
	}
	e := m.f.Ended(0, 10)
	if !e.Missed || len(e.Jobs) > 0 {
		t.Fatalf("three of five are forgotten, the feed says %+v", e)
	}
	e = m.f.Ended(e.UpTo, 10)
	if e.Missed || len(e.Jobs) != 2 || e.UpTo != m.index {
		t.Fatalf("the two that are kept were not given: %+v", e)
	}
}

// TestRestoreForgetsWhatWasWritten: who lost a file of what was written asks for it
// again, and is told that a restored state forgot it.
func TestRestoreForgetsWhatWasWritten(t *testing.T) {
	t.Parallel()
	for _, hold := range []bool{true, false} {
		m := newMachine(t)
		m.must(initCmd("c1", 2))
		f := New(Options{})
		install := func() {
			if err := f.Restore(io.NopCloser(bytes.NewReader(snapshotOf(t, m.f)))); err != nil {
				t.Fatal(err)
			}
		}
		m.must(cancelCmd(m.submit(spec(0)), 1000))
		first := m.index
		install()
		if hold {
			f.HoldEnded(first)
		}
		m.must(cancelCmd(m.submit(spec(0)), 1000))
		install()
		m.must(cancelCmd(m.submit(spec(0)), 1000)) // the first is forgotten, and nothing else
		install()
		if e := f.Ended(0, 10); !e.Missed || e.UpTo != first {
			t.Errorf("held: %t: the job that ended at %d is forgotten, the feed says %+v", hold, first, e)
		}
		if e := f.Ended(first, 10); e.Missed || len(e.Jobs) != 2 {
			t.Errorf("held: %t: two are there, the feed says %+v", hold, e)
		}
	}
}

// TestHeldIsBounded: who takes nothing costs bounded memory, and is told.
func TestHeldIsBounded(t *testing.T) {
	t.Parallel()
	e := endedFeed{hold: true}
	for i := range uint64(maxHeld + 10) {
		e.took(&State{roll: &jobs.Roll{Forgot: []*cluster.Job{{ID: cluster.JobID(i + 1), Revision: i/4 + 1}}}})
	}
	if n := len(e.held); n > maxHeld || n < maxHeld-4 {
		t.Fatalf("%d are held", n)
	}
	if want := e.held[0].Revision - 1; len(e.gaps) != 1 || e.gaps[0].to != want {
		t.Fatalf("gaps %v, want one that ends at %d", e.gaps, want)
	}
}

func TestWaitEnded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(initCmd("c1", 2))
	id := m.submit(spec(0))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- m.f.WaitEnded(ctx, 0) }()
	m.submit(spec(0))
	m.must(cancelCmd(id, 1000))
	if err := <-done; err != nil {
		t.Fatalf("wait: %v", err)
	}
	go func() { done <- m.f.WaitEnded(ctx, m.index) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("wait that was given up: %v", err)
	}
}
