package journal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

var _ = draws.Fixed()

// recorder is a disk that knows what of it would be left if the power failed now:
// of each file what was synced, under the name that its folder had when that was.
type recorder struct {
	mu      sync.Mutex
	names   map[string]*recorded // as the running system sees them
	durable map[string]*recorded // as they are after a crash
	// broken makes every Sync from now on fail, with full, if there is one.
	broken bool
	full   error
}

type recorded struct {
	of     *recorder
	data   []byte
	synced int
}

func newRecorder() *recorder {
	return &recorder{names: map[string]*recorded{}, durable: map[string]*recorded{}}
}

func (d *recorder) create(path string) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := &recorded{of: d}
	d.names[path] = f
	return f, nil
}

func (d *recorder) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.names[from]; f.synced < len(f.data) { // the name may reach the disk before what is in it
		return fmt.Errorf("%s takes the name of %s, and %d bytes of it are on disk of %d", from, to, f.synced, len(f.data))
	}
	d.names[to] = d.names[from]
	delete(d.names, from)
	return nil
}

func (d *recorder) remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.names, path)
	return nil
}

func (d *recorder) syncDir(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.durable = maps.Clone(d.names)
	return nil
}

func (f *recorded) Write(p []byte) (int, error) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.data = append(f.data, p...)
	return len(p), nil
}

func (f *recorded) Sync() error {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.of.broken {
		if f.of.full != nil {
			return f.of.full
		}
		return errors.New("the disk is broken")
	}
	f.synced = len(f.data)
	return nil
}

func (f *recorded) Close() error { return nil }

// crashed is the journal that a machine finds after its power failed, of
// which some bytes beyond what was synced may have reached the disk.
func (d *recorder) crashed(t interface {
	Helper()
	Fatal(...any)
}, dir string, more int) *Journal {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.durable[Path(dir)]; f != nil {
		if err := os.WriteFile(Path(dir), f.data[:min(len(f.data), f.synced+more)], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// promise is what a caller may rely on: what Begin and End said was done.
type promise struct {
	begun, ended, forgotten bool
	limit                   int64 // of the newest assignment
}

// TestWhatIsPromisedIsOnDisk: whatever was journaled in whatever order, and
// whenever the power fails: every intent and every end that was taken on is there
// afterwards, ends that came before a newer intent too, and the highest
// token of each job, forgotten or not.
func TestWhatIsPromisedIsOnDisk(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := root + "/" + strconv.Itoa(n)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		d := newRecorder()
		j, err := openOn(d, dir)
		if err != nil {
			t.Fatal(err)
		}
		promises := map[cluster.AttemptID]*promise{}
		tokens := map[cluster.JobID]cluster.Token{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			id := cluster.AttemptID{Job: cluster.JobID(rapid.IntRange(1, 3).Draw(t, "job")), No: uint32(rapid.IntRange(1, 2).Draw(t, "attempt"))}
			p := promises[id]
			if p == nil {
				p = &promise{}
				promises[id] = p
			}
			switch rapid.SampledFrom([]string{"begin", "begin", "end", "forget", "rewrite"}).Draw(t, "step") {
			case "begin":
				p.limit++
				token := cluster.Token(rapid.IntRange(1, 9).Draw(t, "token"))
				as := &nodev1.Assignment{Job: uint64(id.Job), Attempt: id.No, Token: uint64(token), MemMib: p.limit}
				if err := j.Begin(as); err != nil {
					t.Fatal(err)
				}
				if p.forgotten {
					*p = promise{limit: p.limit}
				}
				p.begun = true
				tokens[id.Job] = max(tokens[id.Job], token)
			case "end":
				if err := j.End(&nodev1.Report{Job: uint64(id.Job), Attempt: id.No, Exit: &nodev1.Exit{Code: 7}}); err != nil {
					t.Fatal(err)
				}
				p.ended = p.ended || p.begun && !p.forgotten
			case "forget":
				if err := j.Forget(id); err != nil {
					t.Fatal(err)
				}
				p.forgotten = p.begun
			case "rewrite":
				j.mu.Lock()
				err := j.rewrite()
				j.mu.Unlock()
				if err != nil {
					t.Fatal(err)
				}
			}
			after := d.crashed(t, dir, rapid.IntRange(0, 60).Draw(t, "bytes beyond"))
			for id, p := range promises {
				rec, known := after.Records()[id]
				switch {
				case !p.begun || p.forgotten: // it may still be there
				case !known:
					t.Fatalf("%s was begun and is not there after a crash", id)
				case rec.Assignment.MemMib != p.limit:
					t.Fatalf("%s: the assignment of before came back: %d, want %d", id, rec.Assignment.MemMib, p.limit)
				case p.ended != (rec.End != nil):
					t.Fatalf("%s ended: %t, after a crash %v", id, p.ended, rec.End)
				}
				if got := j.Records()[id]; p.begun && !p.forgotten && p.ended != (got.End != nil) {
					t.Fatalf("%s ended: %t, the journal in use says %v", id, p.ended, got.End)
				}
			}
			for job, token := range tokens {
				if after.Token(job) < token || j.Token(job) != token {
					t.Fatalf("job %d had token %d, now %d and after a crash %d", job, token, j.Token(job), after.Token(job))
				}
			}
			if err := after.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestNothingIsPromisedAfterAFailedSync: a page that failed to reach the disk may
// be dropped by the kernel, which then says that all is well.
func TestNothingIsPromisedAfterAFailedSync(t *testing.T) {
	t.Parallel()
	d := newRecorder()
	j, err := openOn(d, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	begin(t, j, 1)
	d.broken = true
	if err := j.Begin(&nodev1.Assignment{Job: 2, Attempt: 1}); err == nil {
		t.Fatal("an intent that is not on disk was taken on")
	}
	d.broken = false
	if err := j.Begin(&nodev1.Assignment{Job: 3, Attempt: 1}); err == nil {
		t.Error("after a failed sync the journal goes on")
	}
	if err := j.End(&nodev1.Report{Job: 1, Attempt: 1}); err == nil {
		t.Error("after a failed sync an end is taken on")
	}
}

// TestRoomAfterAFailedSync: where it failed for want of room, a new file takes the
// place of the one that nobody can trust, and holds all that was promised.
func TestRoomAfterAFailedSync(t *testing.T) {
	t.Parallel()
	d := newRecorder()
	dir := t.TempDir()
	j, err := openOn(d, dir)
	if err != nil {
		t.Fatal(err)
	}
	begin(t, j, 1)
	d.broken, d.full = true, syscall.ENOSPC
	for range 2 {
		if err := j.Begin(&nodev1.Assignment{Job: 2, Attempt: 1, Token: 20}); !noRoom(err) {
			t.Fatalf("an intent that is not on disk was taken on, or refused with %v", err)
		}
	}
	d.broken = false
	begin(t, j, 3)
	have := d.crashed(t, dir, 0).Records()
	for _, job := range []cluster.JobID{1, 3} {
		if have[cluster.AttemptID{Job: job, No: 1}].Assignment == nil {
			t.Errorf("after a crash job %d is not there", job)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Begin(&nodev1.Assignment{Job: 4, Attempt: 1}); err == nil {
		t.Error("a closed journal takes something on")
	}
}

// TestManyWaitForTheirOwnRecords: one fsync may serve many, and none of them
// returns before its own record is on disk.
func TestManyWaitForTheirOwnRecords(t *testing.T) {
	t.Parallel()
	d := newRecorder()
	dir := t.TempDir()
	j, err := openOn(d, dir)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for job := uint64(1); job <= 50; job++ {
		wg.Go(func() {
			begin(t, j, job)
			d.mu.Lock()
			defer d.mu.Unlock()
			f := d.durable[Path(dir)]
			found := false
			for at := 0; at+recordOverhead <= f.synced; {
				r, err := readRecord(bytes.NewReader(f.data[at:f.synced]))
				if err != nil {
					break
				}
				at += len(r) + recordOverhead
				a := new(nodev1.Assignment)
				if r[0] == recIntent && proto.Unmarshal(r[1:], a) == nil && a.Job == job {
					found = true
				}
			}
			if !found {
				t.Errorf("the intent of job %d was taken on before it was on disk", job)
			}
		})
	}
	wg.Wait()
}
