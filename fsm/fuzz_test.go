package fsm

import (
	"bufio"
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// FuzzEntry applies any bytes that can be read as an entry to a state that
// has something of everything: nothing but an unreadable entry stops a
// replica, and what must hold of any state holds after it.
func FuzzEntry(f *testing.F) {
	seed := func(data []byte) { f.Add(data) }
	seed(nil)
	seed(encode(f, testTerm, t0, submitCmd(20, "r", 1000, spec(1))))
	seed(encode(f, testTerm, t0, cancelCmd(2, 0), drainCmd("n1", true), removeCmd("n3"), silentCmd("n2", "boot1")))
	seed(encode(f, testTerm, t0, registerCmd(node("n1", "boot2", 3)), tokenCmd("s", "agent", "x", t0), useCmd("s", "x")))
	seed(encode(f, testTerm, t0, weightsCmd(2, []byte("x")), denyCmd("gate", "y"), initCmd("c2", 1), checkpointCmd(1, nil)))
	seed(encode(f, testTerm, t0, planCmd(dispatch.Plan{
		Starts: []dispatch.Start{{Job: 7, Attempt: 1, Berth: cluster.Berth{Node: "n3"}, Overtook: "x"}},
		Moves:  []dispatch.QueueMove{{Job: 5, GPU: "n1-g0", Rank: 1 << 62}},
	})))
	seed(encode(f, testTerm, t0, installCmd(4, WeightsLearned, []byte("y")), rollbackCmd(5, 1), pinCmd(5, true), silentCmd("n1", "boot1"), fenceCmd("n1")))
	base := everything(f)
	seed(encode(f, testTerm, t0, reportCmd(base.reportOf(2, cluster.JobCompleted)), reportCmd(base.reportOf(4, cluster.JobOutOfMemory))))
	seed(encode(f, testTerm, t0.Add(time.Hour), preemptCmd(dispatch.Preemption{Job: 3, Attempt: 1, For: 5, Why: "x"})))
	snap := snapshotOf(f, base.f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := DecodeEntry(data); err != nil {
			return
		}
		m := restored(t, snap)
		before := m.Index()
		m.Apply(&raft.Log{Index: before + 1, Term: testTerm, Data: data})
		again := restored(t, snapshotOf(t, m))
		if err := errors.Join(checkDerived(m.st), checkDerived(again.st), sameInside(m.st, again.st)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Hash(), m.Hash()) {
			t.Fatal("a restored replica differs")
		}
	})
}

// FuzzSnapshot reads any bytes as a snapshot: an error or a state that writes
// the same state again, and never a panic.
func FuzzSnapshot(f *testing.F) {
	good := snapshotOf(f, everything(f).f)
	f.Add(good)
	f.Add(snapshotOf(f, New(Options{})))
	f.Add(good[:len(good)/2])
	f.Add([]byte{2, 8, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		st, err := readSnapshot(bytes.NewReader(data), Options{})
		if err != nil {
			return
		}
		again, err := readSnapshot(bytes.NewReader(snapshotOf(t, holding(st))), Options{})
		if err != nil || !bytes.Equal(again.hashNow(), st.hashNow()) {
			t.Fatalf("what was read cannot be written and read again: %v", err)
		}
	})
}

// FuzzRecords loads any records, without the hash that keeps most damage from
// a restore: an error or a state that writes itself and is read again, never a
// panic.
func FuzzRecords(f *testing.F) {
	var all bytes.Buffer
	err := everything(f).f.st.each(table.NewWriter(func(r *logv1.Record) error {
		var one bytes.Buffer
		for _, w := range []*bytes.Buffer{&one, &all} {
			if _, err := protodelim.MarshalTo(w, r); err != nil {
				return err
			}
		}
		f.Add(one.Bytes())
		return nil
	}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(all.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		st, br := newState(), bufio.NewReader(bytes.NewReader(data))
		for {
			r := new(logv1.Record)
			if protodelim.UnmarshalFrom(br, r) != nil {
				break
			}
			if st.load(r) != nil {
				return
			}
		}
		if st.settle() != nil {
			return
		}
		again, err := readSnapshot(bytes.NewReader(snapshotOf(t, holding(st))), Options{})
		if err != nil {
			t.Fatalf("what was read cannot be written and read again: %v", err)
		}
		if err := sameInside(st, again); err != nil {
			t.Fatal(err)
		}
	})
}
