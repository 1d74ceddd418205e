package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// watched is a runtime that counts how often each process began, and when it got
// which signal.
type watched struct {
	*agenttest.Runtime
	mu      sync.Mutex
	began   map[cluster.AttemptID]int
	signals map[cluster.AttemptID][]string
	tries   []time.Time // of Create
	zero    time.Time
}

func (w *watched) Create(ctx context.Context, l *launch.Launch) error {
	w.mu.Lock()
	w.tries = append(w.tries, time.Now())
	w.mu.Unlock()
	return w.Runtime.Create(ctx, l)
}

func (w *watched) Start(ctx context.Context, id cluster.AttemptID) error {
	before := w.Phase(id)
	err := w.Runtime.Start(ctx, id)
	if after := w.Phase(id); before != runtime.Running && after == runtime.Running {
		w.mu.Lock()
		w.began[id]++
		w.mu.Unlock()
	}
	return err
}

func (w *watched) Signal(ctx context.Context, id cluster.AttemptID, sig syscall.Signal) error {
	w.mu.Lock()
	w.signals[id] = append(w.signals[id], fmt.Sprintf("%s at %s", sig, time.Since(w.zero).Round(time.Millisecond)))
	w.mu.Unlock()
	return w.Runtime.Signal(ctx, id, sig)
}

// virtual is a rig in virtual time. It is made within a bubble.
func virtual(t *testing.T, tweak func(*agent.Config)) (*rig, *watched) {
	w := &watched{Runtime: agenttest.New(), began: map[cluster.AttemptID]int{}, signals: map[cluster.AttemptID][]string{}, zero: time.Now()}
	r := &rig{t: t, dir: t.TempDir(), rt: w.Runtime, leader: agenttest.NewLeader(t)}
	r.tweak = func(c *agent.Config) {
		c.Host, c.Grace, c.Heartbeat = w, 30*time.Second, 2*time.Second
		c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
		if tweak != nil {
			tweak(c)
		}
	}
	r.start()
	t.Cleanup(func() { r.stop(); synctest.Wait() })
	time.Sleep(time.Second)
	synctest.Wait()
	return r, w
}

// fates is what a test knows of its attempts.
type fates struct {
	r        *rig
	w        *watched
	attempts map[cluster.AttemptID]*fate
	last     map[cluster.JobID]cluster.AttemptID
	token    uint64
}

type fate struct {
	as     *nodev1.Assignment
	wanted bool
	code   int // with which its process was ended by the test, -1 while it was not
}

// TestNothingRunsTwice: whatever fails, is lost on its way, starts again or changes its
// mind, no process of an attempt begins twice, what is reported of it only goes on and
// has one end, which is the one that happened; and in the end what is wanted runs, all
// else is gone, and the journal holds what runs.
func TestNothingRunsTwice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { live(t, rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func live(t *testing.T, rnd *rand.Rand) {
	r, w := virtual(t, nil)
	f := &fates{r: r, w: w, attempts: map[cluster.AttemptID]*fate{}, last: map[cluster.JobID]cluster.AttemptID{}, token: 100}
	var story []string
	for range 90 {
		story = append(story, fmt.Sprintf("%s %s", time.Since(w.zero), f.step(rnd)))
		synctest.Wait()
		f.check(t, story)
	}
	r.leader.MuteAcks(false)
	r.stop() // what was not acknowledged is said again to whoever comes
	r.start()
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	f.check(t, story)
	f.settled(t, story)
}

func (f *fates) step(rnd *rand.Rand) string {
	jobs := []cluster.JobID{1, 2, 3, 4}
	job := jobs[rnd.IntN(len(jobs))]
	id, known := f.last[job]
	a := f.attempts[id]
	busy := errors.New("busy")
	switch rnd.IntN(14) {
	case 0, 1, 2, 3:
		if known && f.r.leader.Last(id) != nil && f.ended(id) || !known {
			id = cluster.AttemptID{Job: job, No: id.No + 1}
			f.token++
			as := assignment(uint64(job))
			as.Attempt, as.Token = id.No, f.token
			f.last[job], f.attempts[id] = id, &fate{as: as, wanted: true, code: -1}
			f.r.leader.Assign(as)
			return "assign " + id.String()
		}
		if a.wanted && !f.ended(id) {
			f.r.leader.Assign(a.as) // said again
			return "assign again " + id.String()
		}
	case 4, 5:
		if known && a.code < 0 && f.r.rt.Phase(id) == runtime.Running {
			a.code = rnd.IntN(3)
			f.r.rt.Exit(id, a.code, rnd.IntN(3) > 0)
			return fmt.Sprintf("exit %s %d", id, a.code)
		}
	case 6:
		if known && a.wanted && !f.ended(id) { // of one whose end is committed a leader says nothing more
			a.wanted = false
			if rnd.IntN(2) == 0 {
				f.r.leader.Drop(id)
				return "drop " + id.String()
			}
			stop := proto.CloneOf(a.as)
			stop.Stop, a.as = true, stop
			f.r.leader.Assign(stop)
			return "stop " + id.String()
		}
	case 7:
		op := []string{"create", "start", "answer of start", "first step", "delete", "inspect", "list"}[rnd.IntN(7)]
		f.r.rt.Fail(op, busy)
		return "fail " + op
	case 8:
		mute := rnd.IntN(2) == 0
		f.r.leader.MuteAcks(mute)
		return fmt.Sprintf("mute %t", mute)
	case 9, 10:
		f.r.stop()
		if rnd.IntN(2) == 0 {
			time.Sleep(time.Duration(rnd.IntN(20)) * time.Second)
		}
		f.r.start()
		return "restart"
	}
	d := time.Duration(rnd.IntN(15_000)) * time.Millisecond
	time.Sleep(d)
	return fmt.Sprintf("sleep %s", d)
}

func (f *fates) ended(id cluster.AttemptID) bool {
	last := f.r.leader.Last(id)
	return last != nil && last.State >= completed
}

// check holds at each moment.
func (f *fates) check(t *testing.T, story []string) {
	t.Helper()
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	for id, a := range f.attempts {
		if n := f.w.began[id]; n > 1 {
			t.Fatalf("%s began %d times\n%s", id, n, strings.Join(story, "\n"))
		}
		var end *nodev1.Report
		state := nodev1.AttemptState(0)
		for _, r := range f.r.leader.Reports(id) {
			if r.Token != a.as.Token {
				t.Fatalf("%s is reported by token %d, it has %d\n%s", id, r.Token, a.as.Token, strings.Join(story, "\n"))
			}
			if r.State < state || end != nil && !proto.Equal(r, end) {
				t.Fatalf("%s: after %s, %v comes %v\n%s", id, state, end, r, strings.Join(story, "\n"))
			}
			if state = r.State; state >= completed {
				end = r
			}
		}
		if end == nil {
			continue
		}
		began := f.w.began[id] > 0
		switch {
		case end.State == completed && (!began || a.code != 0), end.State == failed && began && a.code <= 0,
			end.State == failed && began && a.code > 0 && end.Exit.Code != int32(a.code),
			end.State == cancelled && a.wanted, began && (end.Started == nil || end.Ended.AsTime().Before(end.Started.AsTime())):
			t.Fatalf("%s: wanted %t, began %t, ended by the test with %d, is reported as %v\n%s", id, a.wanted, began, a.code, end, strings.Join(story, "\n"))
		}
	}
}

// settled holds once nothing is under way.
func (f *fates) settled(t *testing.T, story []string) {
	t.Helper()
	var lives []string
	for id, a := range f.attempts {
		runs := f.r.rt.Phase(id) == runtime.Running
		if want := a.wanted && a.code < 0 && !f.ended(id); runs != want {
			t.Errorf("%s: wanted %t, ended by the test with %d: it runs %t, reported %v\n%s", id, a.wanted, a.code, runs, f.r.leader.Last(id), strings.Join(story, "\n"))
		}
		if !runs && f.r.rt.Phase(id) != runtime.Absent {
			t.Errorf("%s: the runtime still has it\n%s", id, strings.Join(story, "\n"))
		}
		if runs {
			lives = append(lives, id.String())
			if last := f.r.leader.Last(id); last == nil || last.State != running {
				t.Errorf("%s runs, and is reported as %v\n%s", id, last, strings.Join(story, "\n"))
			}
		}
	}
	f.r.stop()
	j, err := journal.Open(f.r.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var kept []string
	for id, rec := range j.Records() {
		kept = append(kept, id.String())
		if rec.End != nil {
			t.Errorf("%s: its end is still kept: %v\n%s", id, rec.End, strings.Join(story, "\n"))
		}
	}
	slices.Sort(lives)
	slices.Sort(kept)
	if !slices.Equal(lives, kept) {
		t.Errorf("%v run, and the journal has %v\n%s", lives, kept, strings.Join(story, "\n"))
	}
}

// TestGracesAndLimits: who has to end gets TERM at that moment, and KILL after its grace
// and not before.
func TestGracesAndLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(as *nodev1.Assignment)
		stop   time.Duration // when it is told to end, 0 for never
		want   []string
	}{
		"told to end": {nil, 20 * time.Second, []string{"terminated at 20s", "killed at 50s"}},
		"with a grace of its own": {func(as *nodev1.Assignment) { as.Grace = durationpb.New(7 * time.Second) }, 20 * time.Second, []string{
			"terminated at 20s", "killed at 27s"}},
		"without any": {func(as *nodev1.Assignment) { as.Grace = durationpb.New(0) }, 20 * time.Second, []string{
			"terminated at 20s", "killed at 20s"}},
		"its limit": {func(as *nodev1.Assignment) { as.TimeLimit = durationpb.New(100 * time.Second) }, 0, []string{
			"terminated at 1m40s", "killed at 2m10s"}},
		"told before its limit": {func(as *nodev1.Assignment) { as.TimeLimit = durationpb.New(100 * time.Second) }, 90 * time.Second, []string{
			"terminated at 1m30s", "killed at 2m0s"}},
		"warned": {func(as *nodev1.Assignment) {
			as.TimeLimit, as.Warning = durationpb.New(100*time.Second), &nodev1.Warning{Signal: "USR1", First: true, Before: durationpb.New(40 * time.Second)}
		}, 0, []string{"user defined signal 1 at 1m0s", "terminated at 1m40s", "killed at 2m10s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, w := virtual(t, nil)
				r.rt.IgnoreTERM()
				r.rt.Ignore(syscall.SIGUSR1)
				as := assignment(1)
				if c.change != nil {
					c.change(as)
				}
				r.leader.Assign(as)
				synctest.Wait()
				w.mu.Lock()
				w.zero = time.Now()
				w.mu.Unlock()
				if c.stop > 0 {
					time.Sleep(c.stop)
					stop := proto.CloneOf(as)
					stop.Stop = true
					r.leader.Assign(stop)
				}
				time.Sleep(10 * time.Minute)
				w.mu.Lock()
				defer w.mu.Unlock()
				if !slices.Equal(w.signals[id(1)], c.want) {
					t.Errorf("signals: %q, want %q", w.signals[id(1)], c.want)
				}
				if last := r.leader.Last(id(1)); last == nil || last.State < completed {
					t.Errorf("it is reported as %v", last)
				}
			})
		})
	}
}

// TestALaunchIsTriedForSoLong: what may pass is tried again at distances that double, up
// to ten seconds, for two minutes; a start that went well makes both anew.
func TestALaunchIsTriedForSoLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := virtual(t, nil)
		errs := slices.Repeat([]error{errors.New("busy")}, 100)
		r.rt.Fail("create", errs...)
		began := time.Now()
		r.leader.Assign(assignment(1))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		last := r.leader.Last(id(1))
		if last == nil || last.State != failed || last.Reason != "LaunchFailed" || last.Exit.GetCode() != 125 || !strings.Contains(last.Detail, "busy") {
			t.Fatalf("reported as %v", last)
		}
		if took := last.Ended.AsTime().Sub(began); took < 2*time.Minute || took > 2*time.Minute+11*time.Second {
			t.Errorf("it was given up after %s", took)
		}
		wait := 100 * time.Millisecond
		for i := 1; i < len(w.tries); i++ {
			if d := w.tries[i].Sub(w.tries[i-1]); d != wait {
				t.Errorf("try %d comes after %s, want %s", i, d, wait)
			}
			wait = min(2*wait, 10*time.Second)
		}
		// A node whose runtime says nothing knows nothing: it goes on asking, and says so.
		r.rt.Fail("create", errs...)
		r.rt.Fail("inspect", errs...)
		r.leader.Assign(assignment(2))
		time.Sleep(10 * time.Minute)
		if last := r.leader.Last(id(2)); last == nil || last.State != nodev1.AttemptState_ATTEMPT_STATE_STARTING || last.Detail != "it is tried again: busy" {
			t.Errorf("of a silent runtime: %v", last)
		}
	})
}

// TestOlderSetsAreRefused: sets count by term, and within one by revision; what came
// before what was heard last changes nothing.
func TestOlderSetsAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := virtual(t, nil)
		set := func(term, revision uint64, full bool, jobs ...uint64) {
			d := &nodev1.Desired{Term: term, Revision: revision, Full: full}
			for _, j := range jobs {
				d.Assignments = append(d.Assignments, assignment(j))
			}
			r.leader.Say(&nodev1.SessionResponse{Kind: &nodev1.SessionResponse_Desired{Desired: d}})
			synctest.Wait()
		}
		runs := func(what string, jobs ...uint64) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			for j := range uint64(10) {
				if want, is := slices.Contains(jobs, j), r.rt.Phase(id(j)) == runtime.Running; want != is {
					t.Errorf("%s: job %d runs: %t", what, j, is)
				}
			}
		}
		set(5, 50, true, 1)
		runs("the first set", 1)
		set(5, 49, true, 2)
		runs("an older one of its term", 1)
		set(5, 50, false, 3)
		runs("another of its revision", 1, 3)
		set(4, 900, true, 4)
		runs("of an older term", 1, 3)
		set(6, 2, false, 5)
		runs("of a newer term, of a lower revision", 1, 3, 5)
		set(5, 999, true)
		runs("the deposed one", 1, 3, 5)
		set(6, 2, true, 5)
		runs("the whole set", 5)
	})
}
