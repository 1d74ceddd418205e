package raftnode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// contents is all that a node would take from its directory.
type contents struct {
	Ops        []string
	Log        []raft.Log
	Conf       raft.Configuration
	Term, Vote uint64
	VoteFor    string
}

// load reads a directory as a starting node would, through the same code.
func load(dir string) (contents, error) {
	var c contents
	snaps, err := openSnapshots(dir, "", func(error) {}, hclog.NewNullLogger())
	if err != nil {
		return c, err
	}
	list, err := snaps.List()
	if err != nil {
		return c, err
	}
	f, from := &listFSM{}, uint64(0)
	for _, m := range list {
		meta, rc, err := snaps.Open(m.ID)
		if err != nil {
			return c, err
		}
		if err := f.Restore(rc); err != nil {
			return c, err
		}
		from, c.Conf = meta.Index, meta.Configuration
	}
	bolt, err := openBolt(filepath.Join(dir, logFile), readOnly)
	if err != nil {
		return c, err
	}
	s := newStore(bolt, "", "")
	defer s.Close()
	last, err := s.LastIndex()
	if err != nil {
		return c, err
	}
	for i := from + 1; i <= last; i++ {
		var l raft.Log
		if err := s.GetLog(i, &l); err != nil {
			return c, fmt.Errorf("entry %d: %w", i, err)
		}
		if l.Type == raft.LogCommand {
			f.Apply(&l)
		}
		l.AppendedAt = time.Time{} // decides nothing, and has no checksum
		c.Log = append(c.Log, l)
	}
	c.Ops = f.list()
	var err1, err2 error
	c.Term, err = s.GetUint64([]byte(keyTerm))
	c.Vote, err1 = s.GetUint64([]byte(keyVoteTerm))
	who, err2 := s.Get([]byte(keyVoteFor))
	c.VoteFor = string(who)
	return c, errors.Join(err, err1, err2)
}

const opsOfVictim = 90

// victim makes a stopped node's directory with snapshots, a log of many pages,
// and large entries in it.
func victim(t *testing.T) (*testCluster, *member, contents) {
	t.Helper()
	c, m := solo(t, func(cfg *Config) { cfg.TrailingLogs = 20 })
	lead := c.leader()
	for i := range opsOfVictim {
		op := fmt.Sprintf("op%03d-%s", i, strings.Repeat("x", 10+i*5))
		if i%40 == 7 {
			op += strings.Repeat("large", 2000)
		}
		propose(t, lead, op)
		if i%30 == 20 {
			if err := lead.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	kill(t, m)
	if err := Preflight(m.dir); err != nil {
		t.Fatal(err)
	}
	want, err := load(m.dir)
	if err != nil || len(want.Ops) != opsOfVictim || want.Term == 0 || want.VoteFor == "" || len(want.Log) == 0 {
		t.Fatalf("%d ops, %d entries, term %d, err %v", len(want.Ops), len(want.Log), want.Term, err)
	}
	return c, m, want
}

// newestSnapshot is the directory of the newest snapshot.
func newestSnapshot(t *testing.T, dir string) string {
	t.Helper()
	s, err := raft.NewFileSnapshotStore(dir, retainSnapshots, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.List()
	if err != nil || len(l) != retainSnapshots {
		t.Fatalf("%d snapshots, err %v", len(l), err)
	}
	return filepath.Join(dir, snapshotDir, l[0].ID)
}

// verdict checks a directory that was damaged by what: either the damage is
// found, or what would be read is the same as before.
func verdict(t *testing.T, dir, what string, want contents) (found bool) {
	t.Helper()
	if err := Preflight(dir); err != nil {
		if _, ok := errors.AsType[*CorruptError](err); !ok || !strings.Contains(err.Error(), "move "+dir+" away") {
			t.Errorf("%s: error without remedy: %v", what, err)
		}
		return true
	}
	got, err := load(dir)
	if err != nil {
		t.Errorf("%s: passed the check, and then: %v", what, err)
	} else if !reflect.DeepEqual(want, got) {
		t.Errorf("%s: passed the check, but is read differently:\n%.2000s", what, cmp.Diff(want, got))
	}
	return false
}

// change damages a file in place, and puts it back when check has run. The log
// file ends in empty space that is never read, so only what is in use counts.
func change(t *testing.T, file string, damage func([]byte) []byte, check func()) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	good := make([]byte, used(t, file))
	if _, err := f.ReadAt(good, 0); err != nil {
		t.Fatal(err)
	}
	bad := damage(slices.Clone(good))
	if len(bad) < len(good) {
		err = f.Truncate(int64(len(bad)))
	} else {
		_, err = f.WriteAt(bad, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	check()
	if _, err := f.WriteAt(good, 0); err != nil {
		t.Fatal(err)
	}
}

// used is the length of a file, that of the log up to its last page.
func used(t *testing.T, file string) int {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(file) != logFile {
		return int(info.Size())
	}
	meta, err := readMetas(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return int(meta.pages) * int(meta.pageSize)
}

func flip(bit int) func([]byte) []byte {
	return func(b []byte) []byte { b[bit/8] ^= 1 << (bit % 8); return b }
}

// TestBitFlips flips one bit at 200 places of each file of a stopped node, and
// every bit of what tells the log file's other pages apart.
func TestBitFlips(t *testing.T) {
	t.Parallel()
	c, m, want := victim(t)
	snap := newestSnapshot(t, m.dir)
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, file := range []string{filepath.Join(m.dir, logFile), filepath.Join(snap, "meta.json"), filepath.Join(snap, "state.bin")} {
		var bits []int
		for range 200 {
			bits = append(bits, rnd.IntN(used(t, file)*8))
		}
		if filepath.Base(file) == logFile {
			bits = append(bits, rootBits(t, file)...)
		}
		found := 0
		for _, bit := range bits {
			what := fmt.Sprintf("%s, bit %d of byte %d", filepath.Base(file), bit%8, bit/8)
			change(t, file, flip(bit), func() {
				if verdict(t, m.dir, what, want) {
					found++
				}
			})
		}
		t.Logf("%s: %d flips, %d found, %d harmless", filepath.Base(file), len(bits), found, len(bits)-found)
		if found == 0 {
			t.Errorf("%s: nothing was found, which cannot be", file)
		}
	}
	// A node refuses what Preflight refuses.
	change(t, filepath.Join(snap, "state.bin"), flip(4000), func() {
		err := openErr(t, c, m, func(*Config) {})
		if _, ok := errors.AsType[*CorruptError](err); !ok {
			t.Errorf("open with a damaged snapshot: %v", err)
		}
	})
	c.restart(m)
	c.leader()
	c.agree(want.Ops)
}

// rootBits are the bits of the metas, of the page that holds the tables' roots,
// and of the pointers to the last page of each branch: a wrong one could lead
// to an older copy of it.
func rootBits(t *testing.T, file string) []int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := readMetas(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var bits []int
	span := func(from, n int) {
		for i := from * 8; i < (from+n)*8; i++ {
			bits = append(bits, i)
		}
	}
	ps := int(meta.pageSize)
	span(0, 80)
	span(ps, 80)
	span(int(meta.root)*ps, 120)
	le := binary.LittleEndian
	if flags := le.Uint16(b[int(meta.root)*ps+8:]); flags != flagLeaf {
		t.Fatalf("root page is of kind %d", flags)
	}
	branches := 0
	for p := 2 * ps; p < int(meta.pages)*ps; p += ps {
		if le.Uint16(b[p+8:]) == flagBranch && le.Uint64(b[p:]) == uint64(p/ps) {
			branches++
			n := int(le.Uint16(b[p+10:]))
			span(p+pageHeaderBytes+(n-1)*pageElementBytes, pageElementBytes) // the way to the end of the log
		}
	}
	if branches == 0 {
		t.Fatal("the log is too small to have branch pages")
	}
	return bits
}

// TestTornFiles cuts files short and zeroes pages.
func TestTornFiles(t *testing.T) {
	t.Parallel()
	_, m, want := victim(t)
	snap := newestSnapshot(t, m.dir)
	for _, file := range []string{filepath.Join(m.dir, logFile), filepath.Join(snap, "meta.json"), filepath.Join(snap, "state.bin")} {
		size, name := used(t, file), filepath.Base(file)
		for at := 0; at < size; at += max(size/40, 1) {
			change(t, file, func(b []byte) []byte { return b[:at] }, func() {
				if !verdict(t, m.dir, fmt.Sprintf("%s cut at %d of %d", name, at, size), want) {
					t.Errorf("%s cut at %d of %d is not found", name, at, size)
				}
			})
		}
		for at := 0; at < size; at += 4096 {
			change(t, file, func(b []byte) []byte { clear(b[at:min(at+4096, size)]); return b }, func() {
				verdict(t, m.dir, fmt.Sprintf("%s, zeroes from %d", name, at), want)
			})
		}
	}
	for _, gone := range []string{filepath.Join(m.dir, logFile), filepath.Join(snap, "meta.json"), filepath.Join(snap, "state.bin"), snap} {
		move(t, gone)
		if !verdict(t, m.dir, gone+" is gone", want) && gone != snap {
			t.Errorf("%s is gone and nobody notices", gone)
		}
		if err := os.Rename(gone+".away", gone); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamagedNodeRejoins does what the error tells an operator to do.
func TestDamagedNodeRejoins(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *Config) { cfg.TrailingLogs = 2 })
	lead := c.leader()
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprint(i))
		propose(t, lead, want[i])
	}
	if err := lead.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	c.agree(want)
	f := c.follower()
	kill(t, f)
	change(t, filepath.Join(f.dir, logFile), func(b []byte) []byte { return b[:len(b)/2] }, func() {
		err := openErr(t, c, f, func(*Config) {})
		if _, ok := errors.AsType[*CorruptError](err); !ok {
			t.Fatalf("open with half a log: %v", err)
		}
	})
	move(t, f.dir)
	c.restart(f)
	c.agree(want)
	propose(t, c.leader(), "more")
	c.agree(append(want, "more"))
}
