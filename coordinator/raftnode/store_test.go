package raftnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// newTestStore opens a store on disk; bolt is the same file without checksums.
func newTestStore(t testing.TB) (s *store, bolt *raftboltdb.BoltStore, fatal *[]error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), logFile)
	bolt, err := openBolt(file, readWrite)
	if err != nil {
		t.Fatal(err)
	}
	fatal = new([]error)
	s = newStore(bolt, file, "do something")
	s.fatal = func(err error) { *fatal = append(*fatal, err) }
	t.Cleanup(func() { _ = s.Close() })
	return s, bolt, fatal
}

func TestStoreKeepsEntries(t *testing.T) {
	t.Parallel()
	s, _, fatal := newTestStore(t)
	next := uint64(1)
	rapid.Check(t, func(t *rapid.T) {
		bytesOf := rapid.SliceOfN(rapid.Byte(), 0, 2000)
		var logs, before []*raft.Log
		for range rapid.IntRange(1, 5).Draw(t, "entries") {
			l := &raft.Log{
				Index: next, Term: rapid.Uint64().Draw(t, "term"), Type: raft.LogType(rapid.IntRange(0, 5).Draw(t, "type")),
				Data: bytesOf.Draw(t, "data"), Extensions: bytesOf.Draw(t, "extensions"),
				AppendedAt: time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "at"), 5),
			}
			next++
			c := *l
			logs, before = append(logs, l), append(before, &c)
		}
		if err := s.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, logs); diff != "" {
			t.Fatalf("the caller's entries were changed: %s", diff)
		}
		for _, want := range logs {
			var got raft.Log
			if err := s.GetLog(want.Index, &got); err != nil {
				t.Fatal(err)
			}
			empty := cmp.Transformer("empty", func(b []byte) string { return string(b) })
			if diff := cmp.Diff(*want, got, empty, cmp.Comparer(time.Time.Equal)); diff != "" {
				t.Fatal(diff)
			}
		}
	})
	if len(*fatal) > 0 {
		t.Errorf("fatal: %v", *fatal)
	}
}

func TestStoreRange(t *testing.T) {
	t.Parallel()
	s, _, _ := newTestStore(t)
	for i := range uint64(300) {
		if err := s.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: make([]byte, 50)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range [][2]uint64{{1, 100}, {250, 300}} { // as compaction and as a conflict do
		if err := s.DeleteRange(r[0], r[1]); err != nil {
			t.Fatal(err)
		}
	}
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if first != 101 || last != 249 || err1 != nil || err2 != nil {
		t.Errorf("from %d to %d, err %v, %v", first, last, err1, err2)
	}
	for i := uint64(1); i <= 300; i++ {
		var l raft.Log
		if err := s.GetLog(i, &l); i > 100 && i < 250 && err != nil || (i <= 100 || i >= 250) && !errors.Is(err, raft.ErrLogNotFound) {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	if s.IsMonotonic() {
		t.Error("says that it cannot have gaps")
	}
}

// TestStoreFindsDamage writes through raft-boltdb what a damaged file holds.
func TestStoreFindsDamage(t *testing.T) {
	t.Parallel()
	good := raft.Log{Index: 7, Term: 3, Type: raft.LogCommand, Data: []byte("data"), Extensions: []byte("ext")}
	for _, tc := range []struct {
		name   string
		damage func(*raft.Log)
		want   string
	}{
		{"none", func(*raft.Log) {}, ""},
		{"data", func(l *raft.Log) { l.Data[1] ^= 1 }, "checksum is"},
		{"shorter data", func(l *raft.Log) { l.Data = l.Data[:3] }, "checksum is"},
		{"a byte moved from data to extensions", func(l *raft.Log) {
			l.Extensions = append([]byte{l.Data[3]}, l.Extensions...)
			l.Data = l.Data[:3]
		}, "checksum is"},
		{"term", func(l *raft.Log) { l.Term++ }, "checksum is"},
		{"type", func(l *raft.Log) { l.Type = raft.LogNoop }, "checksum is"},
		{"extensions", func(l *raft.Log) { l.Extensions[0]++ }, "checksum is"},
		{"no checksum", func(l *raft.Log) { l.Extensions = nil }, "no checksum"},
		{"other entry in this place", func(l *raft.Log) { l.Index = 8 }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, bolt, fatal := newTestStore(t)
			if err := s.StoreLog(&good); err != nil {
				t.Fatal(err)
			}
			var l, got raft.Log
			if err := bolt.GetLog(7, &l); err != nil {
				t.Fatal(err)
			}
			tc.damage(&l)
			if err := bolt.StoreLog(&l); err != nil {
				t.Fatal(err)
			}
			err := s.GetLog(l.Index, &got)
			if l.Index == 8 {
				tc.want = "checksum is" // the index is in the sum
			}
			if tc.want == "" {
				if err != nil || len(*fatal) > 0 {
					t.Errorf("err %v, fatal %v", err, *fatal)
				}
				return
			}
			c, ok := errors.AsType[*CorruptError](err)
			if !ok || c.File != s.file || c.Index != l.Index || !strings.Contains(c.What, tc.want) || c.Remedy != "do something" {
				t.Errorf("%v", err)
			}
			if len(*fatal) != 1 || (*fatal)[0] != err {
				t.Errorf("fatal %v", *fatal)
			}
		})
	}
}

func TestStableValues(t *testing.T) {
	t.Parallel()
	s, bolt, fatal := newTestStore(t)
	if _, err := s.GetUint64([]byte("k")); err == nil || err.Error() != "not found" {
		t.Errorf("a missing value: %v; Raft needs «not found»", err)
	}
	if err := s.SetUint64([]byte("k"), 1<<63+5); err != nil {
		t.Fatal(err)
	}
	if v, err := s.GetUint64([]byte("k")); v != 1<<63+5 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
	if len(*fatal) > 0 {
		t.Fatalf("fatal %v", *fatal)
	}
	raw, err := bolt.Get([]byte("k"))
	if err != nil {
		t.Fatal(err)
	}
	raw[0] ^= 0x80
	other, _ := bolt.Get([]byte("k"))
	for name, v := range map[string][]byte{"k": raw, "other key": other, "short": {1}} {
		if err := bolt.Set([]byte(name), v); err != nil {
			t.Fatal(err)
		}
		if _, err := s.GetUint64([]byte(name)); err == nil || !strings.Contains(err.Error(), "wrong checksum") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(*fatal) != 3 {
		t.Errorf("fatal %v", *fatal)
	}
}

// TestFailedWriteIsTheLast lets one write fail: no other is tried, since a
// success after a failed fsync proves nothing.
func TestFailedWriteIsTheLast(t *testing.T) {
	t.Parallel()
	s, _, fatal := newTestStore(t)
	broken := errors.New("input/output error")
	calls := 0
	s.before = func(string) error {
		calls++
		if calls == 2 {
			return broken
		}
		return nil
	}
	for i, want := range []bool{true, false, false} {
		err := s.StoreLog(&raft.Log{Index: uint64(i + 1), Term: 1})
		if (err == nil) != want || !want && !errors.Is(err, broken) {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if calls != 2 || len(*fatal) != 1 {
		t.Errorf("%d writes tried, fatal %v", calls, *fatal)
	}
	if last, err := s.LastIndex(); last != 1 || err != nil {
		t.Errorf("last index %d, err %v", last, err)
	}
}

// TestDiskErrorEndsTheNode breaks the leader's disk: its Fatal is called, the
// others go on, and nothing that was acknowledged is lost.
func TestDiskErrorEndsTheNode(t *testing.T) {
	t.Parallel()
	broken := make(chan struct{})
	c := newCluster(t, 3, func(cfg *Config) {
		if cfg.ID != "c0" {
			return
		}
		cfg.hooks.beforeWrite = func(string) error {
			select {
			case <-broken:
				return fmt.Errorf("no space left on device: %w", os.ErrPermission)
			default:
				return nil
			}
		}
	})
	sick := c.members[0]
	waitFor(t, "the sick node to lead", func() bool {
		if lead := c.leader(); lead != sick {
			_ = lead.TransferLeadership(t.Context())
		}
		return sick.IsLeader()
	})
	propose(t, sick, "kept")
	close(broken)
	if _, _, err := sick.Propose(t.Context(), []byte("unknown")); Classify(err) == Done {
		t.Error("acknowledged without a disk")
	}
	err := <-sick.fatal
	requireParts(t, err, []string{"no space left", logFile, "append entries"})
	kill(t, sick)
	propose(t, c.leader(), "after")
	for _, m := range c.running() {
		waitFor(t, "the others to go on", func() bool {
			l := m.fsm.list()
			return len(l) >= 2 && l[0] == "kept" && l[len(l)-1] == "after"
		})
	}
}

func FuzzWalkBolt(f *testing.F) {
	s, bolt, _ := newTestStore(f)
	var logs []*raft.Log // enough for a branch page and its leaves
	for i := range uint64(60) {
		logs = append(logs, &raft.Log{Index: i + 1, Term: 1, Data: make([]byte, 30)})
	}
	if err := s.StoreLogs(logs); err != nil {
		f.Fatal(err)
	}
	if err := errors.Join(s.SetUint64([]byte(keyTerm), 1), bolt.Sync()); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(s.file)
	if err != nil {
		f.Fatal(err)
	}
	meta, err := readMetas(strings.NewReader(string(b)), int64(len(b)))
	if err != nil {
		f.Fatal(err)
	}
	b = b[:int(meta.pages)*int(meta.pageSize)]
	f.Add(b, 0, byte(0))
	f.Add(b, int(meta.root)*int(meta.pageSize)+10, byte(0xff))
	f.Add(b[:5000], 4096, byte(1))
	f.Add([]byte{}, 0, byte(0))
	f.Fuzz(func(t *testing.T, b []byte, at int, x byte) {
		if at >= 0 && at < len(b) {
			b[at] ^= x
		}
		n := 0
		count := func(k, _ []byte) error { n += len(k); return nil }
		err := walkBolt(strings.NewReader(string(b)), int64(len(b)), map[string]func(k, v []byte) error{"logs": count, "conf": count})
		if err == nil && n > len(b) {
			t.Errorf("%d bytes of keys in a file of %d", n, len(b))
		}
	})
}
