package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// memoryRaft is a Raft of one without a disk.
type memoryRaft struct {
	fsm   *fsm.FSM
	index uint64
}

func (r *memoryRaft) Propose(_ context.Context, data []byte) (uint64, any, error) {
	r.index++
	return r.index, r.fsm.Apply(&raft.Log{Index: r.index, Term: 1, Data: data}), nil
}

// slowRaft is a Raft of one that takes a while for each entry, and keeps what each
// holds. before may change an entry before it is applied.
type slowRaft struct {
	memoryRaft
	before  func(e *logv1.Entry)
	entries []*logv1.Entry
	largest int
}

func (r *slowRaft) Propose(ctx context.Context, data []byte) (uint64, any, error) {
	time.Sleep(10 * time.Millisecond)
	e, err := fsm.DecodeEntry(data)
	if err != nil {
		return 0, nil, err
	}
	if r.before != nil {
		r.before(e)
		if data, err = fsm.EncodeEntry(e.Version, e.Term, cluster.Time(e.NowUs), e.Commands); err != nil {
			return 0, nil, err
		}
	}
	r.entries, r.largest = append(r.entries, e), max(r.largest, len(data))
	return r.memoryRaft.Propose(ctx, data)
}

// parts counts the entries that brought something large, and the submits.
func (r *slowRaft) parts() (parts, submits int) {
	for _, e := range r.entries {
		for _, c := range e.Commands {
			if c.GetPutBulk() != nil {
				parts++
			}
			if c.GetSubmitJob() != nil {
				submits++
			}
		}
	}
	return parts, submits
}

// largeSubmits runs what a leader needs to submit jobs, in virtual time.
func largeSubmits(t *testing.T, version uint32) (*Admission, *slowRaft) {
	f := fsm.New(fsm.Options{})
	r := &slowRaft{memoryRaft: memoryRaft{fsm: f}}
	c := New(Config{}, Needs{FSM: f, Proposer: proposer.New(r, f, time.Now, func() error { return nil }), Clock: time.Now})
	c.prop.SetVersion(version, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.prop.Run(ctx, 1) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return c, r
}

const largeParts = 4

// submitLarge submits jobs that have the same environment of largeParts parts.
func submitLarge(ctx context.Context, c *Admission, request string, n int) (fsm.Result, error) {
	var jobs []*cluster.Job
	cmd := &logv1.SubmitJob{RequestId: request, BodyHash: make([]byte, 32), Owner: &logv1.Owner{Uid: 1000}}
	for range n {
		j := &cluster.Job{Spec: &cluster.Spec{Name: "j", Env: []string{"A=" + strings.Repeat("x", largeParts*fsm.BulkPart-100)}}}
		jobs = append(jobs, j)
		cmd.Jobs = append(cmd.Jobs, &logv1.NewJob{Spec: c.Stored(j.Spec)})
	}
	return c.Propose(ctx, &Entry{Who: authorize.Caller{UID: 1000}}, jobs, cmd)
}

// TestEqualPartsComeOnce: of many who submit the same at once one brings it, part by
// part, and so does one call that submits it many times.
func TestEqualPartsComeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := largeSubmits(t, fsm.EntryVersion)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if r, err := submitLarge(t.Context(), c, fmt.Sprint("request", i), 5); err != nil || len(r.Jobs) != 5 {
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
		wg.Wait()
		if parts, submits := r.parts(); parts != largeParts || submits != 20 {
			t.Errorf("%d parts were brought for %d submits, want %d for 20", parts, submits, largeParts)
		}
		if r.largest > fsm.BulkPart+256 {
			t.Errorf("an entry has %d bytes", r.largest)
		}
		jobs, _ := c.fsm.Jobs(fsm.Query{})
		if len(jobs) != 100 || slices.ContainsFunc(jobs, func(j *cluster.Job) bool { env, _ := j.Spec.Large(); return len(env) != 1 }) {
			t.Errorf("%d jobs, want 100 with a variable each", len(jobs))
		}
	})
}

// TestWaitingForAnothersParts: who waits for what another call brings gives up with
// its own deadline, and brings it itself when the other one fails.
func TestWaitingForAnothersParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := largeSubmits(t, fsm.EntryVersion)
		first, giveUp := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := submitLarge(first, c, "first", 1); codeOf(err) != cluster.CodeUnavailable {
				t.Errorf("the first, which gives up: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := submitLarge(ctx, c, "second", 1); codeOf(err) != cluster.CodeUnavailable {
				t.Errorf("the second, which waits for a moment: %v", err)
			}
		})
		wg.Go(func() {
			if _, err := submitLarge(t.Context(), c, "third", 1); err != nil {
				t.Errorf("the third: %v", err)
			}
		})
		time.Sleep(5 * time.Millisecond)
		giveUp()
		wg.Wait()
		if _, submits := r.parts(); submits != 1 {
			t.Errorf("%d submits, want the third alone", submits)
		}
	})
}

// TestPartsThatAreForgotten: what is forgotten before its job comes is brought again,
// a few times.
func TestPartsThatAreForgotten(t *testing.T) {
	for _, tc := range []struct{ late, parts, submits int }{{1, 2, 2}, {100, bringTries, bringTries}} {
		synctest.Test(t, func(t *testing.T) {
			c, r := largeSubmits(t, fsm.EntryVersion)
			late := 0
			r.before = func(e *logv1.Entry) {
				if e.Commands[0].GetSubmitJob() != nil && late < tc.late {
					late++
					time.Sleep(2 * time.Minute)
					e.NowUs = time.Now().UnixMicro()
				}
			}
			res, err := submitLarge(t.Context(), c, "request", 1)
			if tc.late == 1 && (err != nil || len(res.Jobs) != 1) || tc.late > 1 && codeOf(err) != cluster.CodeUnavailable {
				t.Errorf("forgotten %d times: %+v, %v", tc.late, res, err)
			}
			if parts, submits := r.parts(); parts != tc.parts*largeParts || submits != tc.submits {
				t.Errorf("forgotten %d times: %d parts and %d submits, want %d and %d", tc.late, parts, submits, tc.parts*largeParts, tc.submits)
			}
		})
	}
}

// TestOlderCoordinatorsAreGivenAll: where one does not know names, jobs have in the
// log all that is theirs.
func TestOlderCoordinatorsAreGivenAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := largeSubmits(t, fsm.NamesBulk-1)
		if _, err := submitLarge(t.Context(), c, "request", 2); err != nil {
			t.Fatal(err)
		}
		if parts, submits := r.parts(); parts != 0 || submits != 1 || r.largest < 2*(largeParts-1)*fsm.BulkPart {
			t.Errorf("%d parts, %d submits, the largest entry has %d bytes", parts, submits, r.largest)
		}
	})
}

func codeOf(err error) cluster.Code {
	if e, ok := errors.AsType[*cluster.Error](err); ok {
		return e.Code
	}
	return cluster.CodeInternal
}
