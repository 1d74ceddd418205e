package fsm

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/berth-scheduler/berth/cluster"
)

// TestPersistWhileApplying: what is written is the state of the entry at
// which the snapshot was taken, while entries go on that change every table.
// The race detector watches.
func TestPersistWhileApplying(t *testing.T) {
	t.Parallel()
	m := everything(t)
	m.f.opts.Together = atOnce
	var wg sync.WaitGroup
	for round := range 12 {
		snap, err := m.f.Snapshot() // before what changed is digested
		if err != nil {
			t.Fatal(err)
		}
		want := m.f.Hash()
		wg.Go(func() {
			defer snap.Release()
			var s sink
			if err := snap.Persist(&s); err != nil {
				t.Errorf("round %d: %v", round, err)
				return
			}
			st, err := readSnapshot(bytes.NewReader(s.Bytes()), Options{Together: atOnce})
			if err != nil {
				t.Errorf("round %d: %v", round, err)
				return
			}
			if !bytes.Equal(st.hashNow(), want) {
				t.Errorf("round %d: another state was written", round)
			}
		})
		churn(m)
	}
	wg.Wait()
	if err := checkDerived(m.f.st); err != nil {
		t.Error(err)
	}
}

// churn changes every table that a snapshot shares with the live state.
func churn(m *machine) {
	m.t.Helper()
	for range 4 {
		waits := m.submit(spec(1))
		m.enqueue(waits, "n1-g1", int64(waits%3))
		r := m.reportOf(running(m, spec(1), 1000), cluster.JobCompleted)
		r.Usage = usage(900, false)
		m.must(reportCmd(r))
		m.must(cancelCmd(waits, 0))
	}
	m.must(registerCmd(node("n3", "boot9", 0)))
	m.must(drainCmd("n3", m.index%2 == 0))
	m.must(denyCmd("gate", string(rune('a'+m.index%26))))
	v, _ := m.f.Weights()
	m.must(weightsCmd(v+1, []byte{byte(v)}))
}

// TestRestoreWhileReading: readers see one whole state or the other.
func TestRestoreWhileReading(t *testing.T) {
	t.Parallel()
	a, b := everything(t), lab(t)
	snaps := [][]byte{snapshotOf(t, a.f), snapshotOf(t, b.f)}
	hashes := [][]byte{a.f.Hash(), b.f.Hash()}
	f := restored(t, snaps[0])
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			snap := f.SchedulerSnapshot()
			if (snap.Index == a.index) != (len(snap.Waiting) > 0) {
				t.Errorf("%d jobs wait at index %d", len(snap.Waiting), snap.Index)
				return
			}
			if h := f.Hash(); !bytes.Equal(h, hashes[0]) && !bytes.Equal(h, hashes[1]) {
				t.Errorf("a state of neither snapshot: %x", h)
				return
			}
		}
	})
	for i := range 20 {
		if err := f.Restore(readCloser{bytes.NewReader(snaps[(i+1)%2])}); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
}

// readCloser is what raft hands to Restore.
type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// TestWaitersAreWoken: by each entry and by a restore, once what they wait
// for is there, and not before.
func TestWaitersAreWoken(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]func(*testing.T, *machine){
		"entry": func(_ *testing.T, m *machine) { m.submit(spec(0)) },
		"restore": func(t *testing.T, m *machine) {
			other := newMachine(t)
			for range 3 {
				other.submit(spec(0))
			}
			if err := m.f.Restore(readCloser{bytes.NewReader(snapshotOf(t, other.f))}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				done := make(chan error, 3)
				for range cap(done) {
					go func() { done <- m.f.WaitChange(t.Context(), 1) }()
				}
				synctest.Wait()
				m.must(initCmd("c1", 1))
				synctest.Wait()
				if n := len(done); n != 0 {
					t.Fatalf("%d returned after entry 1", n)
				}
				last(t, m)
				synctest.Wait()
				if n := len(done); n != cap(done) {
					t.Fatalf("%d of %d returned", n, cap(done))
				}
				for range cap(done) {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

func TestWaitersGiveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		var err error
		go func() { err = m.f.WaitChange(ctx, 5) }()
		synctest.Wait()
		cancel(nil)
		synctest.Wait()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("err %v", err)
		}
	})
}
