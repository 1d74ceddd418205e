package fsm

import (
	"bytes"
	"sync"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
)

// TestPersistWhileApplying: what is written is the state of the entry at
// which the snapshot was taken, while entries go on that change every table.
// The race detector watches.
func TestPersistWhileApplying(t *testing.T) {
	t.Parallel()
	m := everything(t)
	var wg sync.WaitGroup
	for round := range 12 {
		want := m.f.Hash()
		snap, err := m.f.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer snap.Release()
			var s sink
			if err := snap.Persist(&s); err != nil {
				t.Errorf("round %d: %v", round, err)
				return
			}
			st, err := readSnapshot(bytes.NewReader(s.Bytes()))
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
