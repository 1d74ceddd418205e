package fsm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/orders"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

var _ raft.FSM = (*FSM)(nil)

func TestEntryOfAnOlderTermIsIgnored(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(initCmd("c1", 5))
	was, now := contents(t, m.f), m.f.Now()
	m.index, m.now = m.index+1, m.now.Add(time.Hour)
	rs := m.apply(testTerm, testTerm+1, submitCmd(1, "r1", 1000, spec(1)), cancelCmd(1, 0))
	for _, r := range rs {
		if r.Err == nil || r.Err.Code != cluster.CodeUnavailable || r.Index != m.index {
			t.Errorf("got %+v", r)
		}
	}
	if contents(t, m.f) != was || m.f.Now() != now {
		t.Error("an ignored entry changed the state")
	}
	if m.f.Index() != m.index || m.f.Term() != testTerm+1 {
		t.Errorf("index %d, term %d", m.f.Index(), m.f.Term())
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(initCmd("c1", 5))
	latest := m.now
	m.now = m.now.Add(-time.Hour)
	m.must(submitCmd(1, "r1", 1000, spec(1)))
	if j := m.job(1); m.f.Now() != latest || j.Submitted != latest {
		t.Errorf("now %d, submitted %d, want %d", m.f.Now(), j.Submitted, latest)
	}
}

func TestUnreadableEntriesStopTheReplica(t *testing.T) {
	t.Parallel()
	good := encode(t, 1, t0, initCmd("c1", 1))
	newer := append(bytes.Clone(good), protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), EntryVersion+1)...)
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	future := protowire.AppendBytes(protowire.AppendTag(nil, 999, protowire.BytesType), []byte("x"))
	unknown = protowire.AppendBytes(protowire.AppendTag(unknown, 4, protowire.BytesType), future)
	for _, tc := range []struct {
		name, want string
		data       []byte
	}{
		{"empty", "version 0", nil},
		{"torn", "malformed", good[:len(good)-2]},
		{"noise", "malformed", []byte{0xff, 0xff, 0xff}},
		{"newer version", fmt.Sprintf("version %d", EntryVersion+1), newer},
		{"unknown command", "does not know", unknown},
		{"command without a kind", "does not know", encode(t, 1, t0, &logv1.Command{})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := DecodeEntry(tc.data); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("decode: %v, want %q in it", err, tc.want)
			}
			defer func() {
				if p := recover(); p == nil || !strings.Contains(p.(string), "log entry 7") {
					t.Errorf("Apply went on: %v", p)
				}
			}()
			New(Options{}).Apply(&raft.Log{Index: 7, Term: 1, Data: tc.data})
		})
	}
}

func TestTextThatIsNotUTF8IsNeverProposed(t *testing.T) {
	t.Parallel()
	if _, err := EncodeEntry(EntryVersion, 1, t0, []*logv1.Command{denyCmd("a", "\xff")}); err == nil {
		t.Fatal("encoded")
	}
}

// checkpoints applies entries up to and beyond one checkpoint.
func checkpoints(t *testing.T, m *machine) (uint64, []byte) {
	t.Helper()
	m.must(initCmd("c1", 5))
	if i, h := m.f.LastCheckpoint(); i != 0 || h != nil {
		t.Fatalf("checkpoint %d before the first", i)
	}
	m.index = checkpointEvery - 1
	m.submit(spec(1))
	want := m.f.Hash()
	index, hash := m.f.LastCheckpoint()
	if index != checkpointEvery || !bytes.Equal(hash, want) {
		t.Fatalf("checkpoint %d %x, want %d %x", index, hash, checkpointEvery, want)
	}
	m.submit(spec(1))
	if i, _ := m.f.LastCheckpoint(); i != index {
		t.Fatalf("checkpoint %d after one entry more", i)
	}
	return index, hash
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	var calls []uint64
	m := newMachine(t)
	m.f = New(Options{OnDiverged: func(index uint64, want, got []byte) {
		if bytes.Equal(want, got) {
			t.Error("diverged with equal hashes")
		}
		calls = append(calls, index)
	}})
	index, hash := checkpoints(t, m)
	wrong := bytes.Clone(hash)
	wrong[3]++
	m.must(checkpointCmd(index, hash))
	m.must(checkpointCmd(index-1, wrong)) // of another index: nothing to compare with
	m.index, m.now = m.index+1, m.now.Add(1)
	m.apply(testTerm, testTerm+1, checkpointCmd(index, wrong)) // of a deposed leader
	if len(calls) != 0 {
		t.Fatalf("diverged at %v", calls)
	}
	m.must(checkpointCmd(index, wrong))
	if len(calls) != 1 || calls[0] != index {
		t.Fatalf("diverged at %v, want %d", calls, index)
	}
}

func TestRememberedHashesAreBounded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for range rememberedHashes + 10 {
		m.index += checkpointEvery
		m.submit(spec(0))
	}
	if n := len(m.f.hashes); n != rememberedHashes {
		t.Fatalf("%d hashes are remembered", n)
	}
}

// TestHashCoversEverything: no part of the state may differ unseen.
func TestHashCoversEverything(t *testing.T) {
	t.Parallel()
	full := func() *machine {
		m := lab(t)
		id := running(m, spec(1), 8000)
		r := m.reportOf(id, cluster.JobCompleted)
		r.Usage = usage(5000, false)
		m.must(reportCmd(r))
		m.enqueue(m.submit(spec(1)), "n1-g0", 1)
		m.must(tokenCmd("s", agentRole, "n7", m.now.Add(time.Hour)))
		m.must(denyCmd("gate", "x"))
		m.must(weightsCmd(1, []byte("w")))
		return m
	}
	want := full().f.Hash()
	if !bytes.Equal(full().f.Hash(), want) {
		t.Fatal("the same log has another hash")
	}
	for name, change := range map[string]func(s *State){
		"index":     func(s *State) { s.at.Index++ },
		"term":      func(s *State) { s.term++ },
		"time":      func(s *State) { s.at.Now++ },
		"next job":  func(s *State) { s.roll.NextID++ },
		"last hash": func(s *State) { s.lastHash++ },
		"sample no": func(s *State) { s.learned.Number(s.learned.Seq() + 1) },
		"config":    func(s *State) { s.config.Name = "x"; s.configDigest.Touch(table.One{}) },
		"node":      func(s *State) { n := *s.fleet.Node("n1"); n.Version = "x"; s.fleet.Put(&n) },
		"job":       func(s *State) { j := s.roll.Jobs.Get(2).Clone(); j.Revision++; s.roll.Put(s.roll.Jobs.Get(2), j) },
		"queue":     func(s *State) { s.roll.Queues.Set("n1-g0", []dispatch.Waiter{{Job: 2, Rank: 9}}) },
		"request":   func(s *State) { s.desk.Requests.Add(&orders.Request{Key: orders.Key{1}, Count: 1}) },
		"token":     func(s *State) { s.keyring.Expire(1 << 62) },
		"denied":    func(s *State) { s.keyring.Deny(*s.at, denyCmd("gate", "y").GetDenyIdentity()) },
		"weights":   func(s *State) { s.learned.Apply(*s.at, pinCmd(1, true)) },
		"sample":    func(s *State) { s.learned.Apply(*s.at, importCmd(pastRun(1))) },
	} {
		m := full()
		change(m.f.st)
		if bytes.Equal(m.f.Hash(), want) {
			t.Errorf("%s changed and the hash did not", name)
		}
	}
}

func TestHashDoesNotDependOnWhenItIsAsked(t *testing.T) {
	t.Parallel()
	a, b := lab(t), lab(t)
	for i := range 50 {
		for _, m := range []*machine{a, b} {
			id := running(m, spec(1), 8000)
			m.report(id, cluster.JobCompleted)
		}
		if i%3 == 0 {
			a.f.Hash()
		}
	}
	if !bytes.Equal(a.f.Hash(), b.f.Hash()) {
		t.Error("hashes differ")
	}
}

func TestManyDirtyJobsAreHashedOnTheWay(t *testing.T) {
	t.Parallel()
	m, whole := newMachine(t), newMachine(t)
	specs := make([]*cluster.Spec, table.MaxDirty+1)
	for i := range specs {
		specs[i] = spec(0)
	}
	for _, m := range []*machine{m, whole} {
		m.must(submitCmd(1, "r1", 1000, specs...))
	}
	if n := m.f.st.hash.Dirty(); n != table.MaxDirty/2 {
		t.Errorf("%d dirty jobs after an entry with %d, want %d", n, len(specs), table.MaxDirty/2)
	}
	const more = table.MaxDirty * 3 / 4
	for i := range 5 {
		for _, m := range []*machine{m, whole} {
			m.must(submitCmd(cluster.JobID(len(specs)+i*more+1), fmt.Sprint("more", i), 1000, specs[:more]...))
		}
		if n := m.f.st.hash.Dirty(); n > table.MaxDirty {
			t.Errorf("%d dirty jobs after entries with %d, a snapshot waits for %d at most", n, more, table.MaxDirty)
		}
	}
	if !bytes.Equal(m.f.Hash(), restored(t, snapshotOf(t, whole.f)).Hash()) {
		t.Error("hashes differ")
	}
}

func TestWaitChange(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	done := make(chan error, 1)
	go func() { done <- m.f.WaitChange(context.Background(), 1) }()
	m.must(initCmd("c1", 1))
	select {
	case err := <-done:
		t.Fatalf("returned after entry 1: %v", err)
	default:
	}
	m.submit(spec(0))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.f.WaitChange(ctx, m.f.Index()); !errors.Is(err, context.Canceled) {
		t.Fatalf("err %v", err)
	}
	if err := m.f.WaitChange(ctx, 0); err != nil {
		t.Fatalf("what has happened needs no wait: %v", err)
	}
}
