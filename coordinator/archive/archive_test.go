package archive

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/coordinator/history"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

var _ = draws.Fixed()

// pastLog is a log in which jobs end, with a snapshot after each entry, and what
// has ended by then.
type pastLog struct {
	entries [][]byte
	snaps   [][]byte
	ended   []cluster.JobID // in order
	until   []int           // ended[:until[i]] after i entries
}

type snapSink struct{ bytes.Buffer }

func (*snapSink) ID() string    { return "" }
func (*snapSink) Close() error  { return nil }
func (*snapSink) Cancel() error { return nil }

func drawPastLog(t *rapid.T) *pastLog {
	l := &pastLog{snaps: [][]byte{nil}, until: []int{0}}
	f := fsm.New(fsm.Options{})
	now := cluster.Time(1_700_000_000_000_000)
	put := func(cmds ...*logv1.Command) {
		now += 1_000_000
		data, err := fsm.EncodeEntry(1, 1, now, cmds)
		if err != nil {
			t.Fatal(err)
		}
		l.entries = append(l.entries, data)
		f.Apply(&raft.Log{Index: uint64(len(l.entries)), Term: 1, Data: data})
		s, err := f.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		var sink snapSink
		if err := s.Persist(&sink); err != nil {
			t.Fatal(err)
		}
		l.snaps, l.until = append(l.snaps, sink.Bytes()), append(l.until, len(l.ended))
	}
	keep := uint32(rapid.IntRange(1, 4).Draw(t, "keep"))
	put(&logv1.Command{Kind: &logv1.Command_InitCluster{InitCluster: &logv1.InitCluster{Config: &logv1.Config{ClusterId: "c", KeepFinished: keep}}}})
	var open []uint64
	next := uint64(1)
	for range rapid.IntRange(1, 15).Draw(t, "entries") {
		sub := &logv1.SubmitJob{RequestId: fmt.Sprintf("request-%09d", next), BodyHash: make([]byte, 32), FirstJob: next, Owner: &logv1.Owner{Uid: 1000, Name: "u"}}
		for range rapid.IntRange(1, 3).Draw(t, "new") {
			sub.Jobs = append(sub.Jobs, &logv1.NewJob{Spec: &logv1.Spec{Name: "j", Command: [][]byte{[]byte("true")}, Dir: []byte("/")}})
			open = append(open, next)
			next++
		}
		put(&logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: sub}})
		var cmds []*logv1.Command
		var ends []cluster.JobID
		for range rapid.IntRange(0, len(open)).Draw(t, "ends") {
			k := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			cmds = append(cmds, &logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: open[k], By: 1000}}})
			ends = append(ends, cluster.JobID(open[k]))
			open = slices.Delete(open, k, k+1)
		}
		slices.Sort(ends)
		l.ended = append(l.ended, ends...)
		put(cmds...)
	}
	return l
}

// pastReplica is a state machine and a store that is filled from it.
type pastReplica struct {
	t   *rapid.T
	l   *pastLog
	dir string
	f   *fsm.FSM
	a   *Archive
	at  int
}

// start begins as a process does: the store first, then a snapshot, then the log
// behind it.
func (r *pastReplica) start(snapshot int) {
	if r.a != nil {
		r.a.Close()
	}
	r.f = fsm.New(fsm.Options{})
	log := slog.New(slog.DiscardHandler)
	r.a = New(Config{Dir: r.dir, MaxJobs: 1 << 20}, Needs{FSM: r.f, Log: log, StoreLog: log})
	if r.a.store.Load() == nil {
		r.t.Fatalf("the store does not open: %s", r.a.Problem())
	}
	r.install(snapshot)
}

func (r *pastReplica) install(snapshot int) {
	if r.at = snapshot; snapshot == 0 {
		return
	}
	if err := r.f.Restore(io.NopCloser(bytes.NewReader(r.l.snaps[snapshot]))); err != nil {
		r.t.Fatal(err)
	}
}

func (r *pastReplica) apply(n int) {
	for ; n > 0 && r.at < len(r.l.entries); n-- {
		r.at++
		r.f.Apply(&raft.Log{Index: uint64(r.at), Term: 1, Data: r.l.entries[r.at-1]})
	}
}

func (r *pastReplica) step() {
	if err := r.a.step(r.a.store.Load()); err != nil {
		r.t.Fatal(err)
	}
}

// all returns what there is of ended jobs, from store and state together.
func (r *pastReplica) all() []cluster.JobID {
	var out []cluster.JobID
	whole, err := r.a.Scan(context.Background(), &history.Query{OldestFirst: true}, func(j *cluster.Job) error {
		out = append(out, j.ID)
		return nil
	})
	if err != nil || whole == r.holes() {
		r.t.Fatalf("whole: %t, with holes %v: %v", whole, r.a.store.Load().Holes(), err)
	}
	return out
}

// check: nothing twice, nothing out of order, and everything unless it says that
// something is missing. A store may be ahead of a state that reads its log again.
func (r *pastReplica) check() {
	got := r.all()
	if want := r.l.ended[:r.l.until[max(r.at, int(r.a.store.Load().UpTo()))]]; !r.gaps() && !slices.Equal(got, want) {
		r.t.Fatalf("at entry %d there is %v, want %v", r.at, got, want)
	}
	last := -1
	for _, id := range got {
		i := slices.Index(r.l.ended, id)
		if i <= last {
			r.t.Fatalf("job %d comes twice or out of order: %v of %v", id, got, r.l.ended)
		}
		last = i
	}
}

func (r *pastReplica) holes() bool { return len(r.a.store.Load().Holes()) > 0 }

// gaps reports whether it knows that it lacks something.
func (r *pastReplica) gaps() bool {
	for after := r.a.store.Load().UpTo(); ; {
		e := r.f.Ended(after, 1<<20)
		if e.Missed {
			return true
		}
		if e.UpTo <= after {
			return r.holes()
		}
		after = e.UpTo
	}
}

// Mend fills holes from the state and from another replica's store.
func (r *pastReplica) mend(from *pastReplica) {
	s, o := r.a.store.Load(), from.a.store.Load()
	for _, h := range s.Holes() {
		if err := r.a.fillFromState(s, h); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, h := range s.Holes() {
		for at := h.From; at < h.To; {
			p, ok, err := o.Read(at, h.To, 300)
			if err != nil {
				r.t.Fatal(err)
			}
			if !ok {
				break
			}
			if err := s.Fill(p.Span, p.Records); err != nil {
				r.t.Fatal(err)
			}
			at = p.To
		}
	}
}

// TestHistoryProperties: one replica keeps its disk and goes down only with what
// its store has; the other one is given snapshots, loses its disk, or a part of
// it, at any time. The first has every ended job exactly once at any moment, the
// second knows when it lacks some, and both come to the same bytes.
func TestHistoryProperties(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		l := drawPastLog(t)
		safe := &pastReplica{t: t, l: l, dir: filepath.Join(dir, "a")}
		poor := &pastReplica{t: t, l: l, dir: filepath.Join(dir, "b")}
		for _, r := range []*pastReplica{safe, poor} {
			r.start(0)
			defer func() { r.a.Close() }()
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2:
				safe.apply(rapid.IntRange(1, 6).Draw(t, "n"))
			case 3:
				poor.apply(rapid.IntRange(1, 6).Draw(t, "n"))
			case 4:
				safe.step()
			case 5:
				poor.step()
			case 6: // a crash behind a snapshot
				safe.start(rapid.IntRange(0, min(safe.at, int(safe.a.store.Load().UpTo()))).Draw(t, "snapshot"))
			case 7:
				poor.install(rapid.IntRange(poor.at, len(l.entries)).Draw(t, "snapshot"))
			case 8: // its disk is lost, or a part of it
				poor.a.Close()
				poor.lose()
				poor.start(rapid.IntRange(0, poor.at).Draw(t, "snapshot"))
			case 9:
				poor.mend(safe)
			}
			safe.check()
			poor.check()
			if safe.gaps() {
				t.Fatal("the one that lost nothing says that it lacks something")
			}
		}
		for _, r := range []*pastReplica{safe, poor} {
			r.apply(len(l.entries))
			r.step()
			r.mend(safe)
			if r.check(); r.gaps() {
				t.Fatalf("mended, it lacks something: %+v", r.a.Stats())
			}
		}
		if a, b := safe.bytes(), poor.bytes(); !bytes.Equal(a, b) {
			t.Fatal("the replicas keep other bytes")
		}
	})
}

// lose removes or cuts one of the store's files, or all of them.
func (r *pastReplica) lose() {
	files, err := filepath.Glob(filepath.Join(r.dir, "history", "*"))
	if err != nil || len(files) == 0 {
		r.t.Fatalf("no files: %v", err)
	}
	if rapid.Bool().Draw(r.t, "all") {
		if err := os.RemoveAll(r.dir); err != nil {
			r.t.Fatal(err)
		}
		return
	}
	path := rapid.SampledFrom(files).Draw(r.t, "file")
	st, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, int64(rapid.IntRange(0, int(st.Size())).Draw(r.t, "size")))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *pastReplica) bytes() []byte {
	var out []byte
	s := r.a.store.Load()
	for at := uint64(0); at < s.UpTo(); {
		p, ok, err := s.Read(at, s.UpTo(), 1<<20)
		if err != nil || !ok {
			r.t.Fatalf("%t %v", ok, err)
		}
		for _, rec := range p.Records {
			out = append(out, rec...)
		}
		at = p.To
	}
	return out
}
