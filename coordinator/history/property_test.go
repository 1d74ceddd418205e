package history

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// world is a log's ended jobs and a store of them that is treated badly.
type world struct {
	t    *rapid.T
	dir  string
	s    *Store
	jobs []*cluster.Job // in order
	last uint64         // index of the log
}

func (w *world) open() {
	s, err := Open(Config{Dir: w.dir, SegmentJobs: 4, MaxJobs: 30, Log: discard()})
	if err != nil {
		w.t.Fatalf("open: %v", err)
	}
	w.s = s
}

// between returns the jobs that ended in a part of the log.
func (w *world) between(from, to uint64) []*cluster.Job {
	var out []*cluster.Job
	for _, j := range w.jobs {
		if j.Revision > from && j.Revision <= to {
			out = append(out, j)
		}
	}
	return out
}

// grow makes the log longer; ids do not rise with the order of ends.
func (w *world) grow() {
	for range rapid.IntRange(1, 6).Draw(w.t, "entries") {
		w.last++
		n := rapid.IntRange(0, 3).Draw(w.t, "ends")
		for k := range n {
			w.jobs = append(w.jobs, finished(w.last, cluster.JobID((w.last^5+1)*4)+cluster.JobID(k)))
		}
	}
}

// check compares all that the store says with the log.
func (w *world) check() {
	st := w.s.Stats()
	in := func(j *cluster.Job) bool {
		return j.Revision > st.Floor && j.Revision <= st.UpTo && !slices.ContainsFunc(st.Holes, func(h Span) bool { return j.Revision > h.From && j.Revision <= h.To })
	}
	var want []cluster.JobID
	for _, j := range w.jobs {
		switch got, err := w.s.Job(j.ID); {
		case err != nil:
			w.t.Fatalf("job %d: %v", j.ID, err)
		case in(j) != (got != nil):
			w.t.Fatalf("job %d, which ended at %d: found %t with %+v", j.ID, j.Revision, got != nil, st)
		}
		if in(j) {
			want = append(want, j.ID)
		}
	}
	if got := scanIDs(w.t, w.s, Query{OldestFirst: true}); !slices.Equal(got, want) {
		w.t.Fatalf("the store has %v, want %v (%+v)", got, want, st)
	}
	slices.Reverse(want)
	if got := scanIDs(w.t, w.s, Query{}); !slices.Equal(got, want) {
		w.t.Fatalf("newest first the store has %v, want %v", got, want)
	}
	rows := 0
	if err := w.s.View().Rows(&Query{}, func(*Row) { rows++ }); err != nil || rows != len(want) || st.Jobs != len(want) {
		w.t.Fatalf("%d rows, %d jobs in the stats, want %d: %v", rows, st.Jobs, len(want), err)
	}
}

func scanIDs(t *rapid.T, s *Store, q Query) []cluster.JobID {
	var out []cluster.JobID
	if err := s.View().Scan(&q, func(r Result) bool { out = append(out, r.Row.ID); return true }); err != nil {
		t.Fatalf("scan: %v", err)
	}
	return out
}

func (w *world) step() {
	switch rapid.IntRange(0, 9).Draw(w.t, "step") {
	default:
		w.grow()
		to := uint64(rapid.IntRange(int(w.s.UpTo()), int(w.last)).Draw(w.t, "upTo"))
		if err := w.s.Append(to, w.between(w.s.UpTo(), to)); err != nil {
			w.t.Fatalf("append: %v", err)
		}
	case 4:
		w.grow()
		if err := w.s.Skip(w.last); err != nil {
			w.t.Fatalf("skip: %v", err)
		}
	case 5:
		w.fill()
	case 6:
		if err := w.s.Retain(w.jobTime()); err != nil {
			w.t.Fatalf("retain: %v", err)
		}
	case 7: // kill -9, in the middle of a write
		w.tear()
		w.open()
	case 8, 9:
		w.damage()
	}
}

func (w *world) jobTime() cluster.Time {
	if len(w.jobs) == 0 {
		return t0
	}
	return w.jobs[len(w.jobs)-1].Ended
}

// fill puts a part of a hole in its place, as from a peer.
func (w *world) fill() {
	holes := w.s.Holes()
	if len(holes) == 0 {
		return
	}
	h := rapid.SampledFrom(holes).Draw(w.t, "hole")
	h.To = uint64(rapid.IntRange(int(h.From)+1, int(h.To)).Draw(w.t, "until"))
	var records [][]byte
	for _, j := range w.between(h.From, h.To) {
		r, err := Record(j)
		if err != nil {
			w.t.Fatalf("record: %v", err)
		}
		records = append(records, r)
	}
	if err := w.s.Fill(h, records); err != nil {
		w.t.Fatalf("fill %v: %v", h, err)
	}
}

// tear cuts the newest file at any byte, or adds bytes to it, and leaves what a
// write leaves that was not done.
func (w *world) tear() {
	_ = w.s.Close()
	path := w.files("head-")[0]
	b, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatalf("read: %v", err)
	}
	if rapid.Bool().Draw(w.t, "cut") {
		b = b[:rapid.IntRange(0, len(b)).Draw(w.t, "at")]
	} else {
		b = append(b, rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(w.t, "garbage")...)
	}
	for name, data := range map[string][]byte{path: b, filepath.Join(w.dir, "seg-x.tmp"): b} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			w.t.Fatalf("write: %v", err)
		}
	}
}

func (w *world) files(prefix string) []string {
	out, err := filepath.Glob(filepath.Join(w.dir, prefix+"*"))
	if err != nil {
		w.t.Fatalf("glob: %v", err)
	}
	return slices.DeleteFunc(out, func(s string) bool { return strings.HasSuffix(s, ".bad") })
}

// damage changes a byte of a segment, cuts it, or removes it, while it is in
// use or not; reading all finds that.
func (w *world) damage() {
	segs := w.files("seg-")
	if len(segs) == 0 {
		return
	}
	path := rapid.SampledFrom(segs).Draw(w.t, "file")
	b, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatalf("read: %v", err)
	}
	switch rapid.IntRange(0, 2).Draw(w.t, "damage") {
	case 0:
		b[rapid.IntRange(0, len(b)-1).Draw(w.t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(w.t, "bit")
		err = os.WriteFile(path, b, 0o600)
	case 1:
		err = os.WriteFile(path, b[:rapid.IntRange(0, len(b)-1).Draw(w.t, "length")], 0o600)
	default:
		err = os.Remove(path)
	}
	if err != nil {
		w.t.Fatalf("damage: %v", err)
	}
	if rapid.Bool().Draw(w.t, "reopen") {
		_ = w.s.Close()
		w.open()
	}
	for at := w.s.Scrub(0); at != 0; at = w.s.Scrub(at) {
	}
}

// TestStoreProperties: whatever comes, is torn, damaged, dropped and filled, the
// store has what ended but for what it says is missing, in order and once; and
// what is fed and fetched again makes it whole.
func TestStoreProperties(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		w := &world{t: t, dir: dir}
		w.open()
		defer func() { _ = w.s.Close() }()
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			w.step()
			w.check()
		}
		if err := w.s.Append(w.last, w.between(w.s.UpTo(), w.last)); err != nil {
			t.Fatalf("append: %v", err)
		}
		w.refetch()
	})
}

// refetch copies all into another store by Read, and holes into this one, and
// compares the two.
func (w *world) refetch() {
	for _, h := range w.s.Holes() {
		var records [][]byte
		for _, j := range w.between(h.From, h.To) {
			r, _ := Record(j)
			records = append(records, r)
		}
		if err := w.s.Fill(h, records); err != nil {
			w.t.Fatalf("fill: %v", err)
		}
	}
	w.check()
	st := w.s.Stats()
	if len(st.Holes) > 0 || st.UpTo != w.last {
		w.t.Fatalf("filled, it still has holes: %+v, the log ends at %d", st, w.last)
	}
	other, err := Open(Config{Dir: filepath.Join(w.dir, "other"), SegmentJobs: 7, Log: discard()})
	if err != nil {
		w.t.Fatalf("open: %v", err)
	}
	defer other.Close()
	if err := other.Skip(w.last); err != nil {
		w.t.Fatalf("skip: %v", err)
	}
	for at := st.Floor; at < w.last; {
		p, ok, err := w.s.Read(at, w.last, 600)
		if err != nil || !ok || p.From != at || p.To <= at {
			w.t.Fatalf("read after %d: %+v %t %v", at, p.Span, ok, err)
		}
		if err := other.Fill(p.Span, p.Records); err != nil {
			w.t.Fatalf("fill: %v", err)
		}
		at = p.To
	}
	if a, b := allRecords(w.t, w.s), allRecords(w.t, other); !bytes.Equal(a, b) {
		w.t.Fatalf("a store that was filled from another has other bytes: %d and %d", len(b), len(a))
	}
}

func allRecords(t *rapid.T, s *Store) []byte {
	var out []byte
	err := s.View().Scan(&Query{OldestFirst: true}, func(r Result) bool {
		b, err := r.record()
		if err != nil {
			t.Fatalf("record: %v", err)
		}
		out = append(out, b...)
		return true
	})
	if err != nil {
		t.Fatalf("scan: %v", err)
	}
	return out
}

// TestRetainByAge: what is older than it is kept goes, file by file, and does
// not come back.
func TestRetainByAge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, SegmentJobs: 10, Keep: time.Hour, Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, 50, finishedFrom(1, 50))
	now := finished(50, 50).Ended.Add(2 * time.Hour)
	if err := s.Retain(now); err != nil {
		t.Fatal(err)
	}
	st := s.Stats()
	if st.Jobs != 0 || st.Floor != 50 || len(st.Holes) != 0 {
		t.Fatalf("two hours later: %+v", st)
	}
	mustAppend(t, s, 60, finishedFrom(51, 60))
	_ = s.Close()
	again, _ := testStore(t, dir, 10)
	if st := again.Stats(); st.Jobs != 10 || st.Floor != 50 || st.UpTo != 60 || len(st.Holes) != 0 {
		t.Fatalf("opened again: %+v", st)
	}
}
