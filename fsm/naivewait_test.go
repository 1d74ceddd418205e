package fsm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// sitter is a job that waits, to who sits beside it in the waiting room.
type sitter struct {
	id        cluster.JobID
	begin     cluster.Time // not before; 0 for any time
	held      bool
	since     cluster.Time // it waits from then on
	queue     cluster.GPUID
	why       cluster.ReasonCode
	estimates []cluster.Estimate
	estimated cluster.Time
	runs      bool
}

// kept is what keeps it from starting at a time, "" for nothing.
func (s *sitter) kept(now cluster.Time) cluster.ReasonCode {
	switch {
	case s.held:
		return cluster.ReasonHeldUser
	case s.begin > now:
		return cluster.ReasonBeginTime
	}
	return ""
}

// waitingRoom is the jobs that wait, in the order in which they came.
type waitingRoom struct {
	t    *rapid.T
	m    *machine
	seat []*sitter
}

func (w *waitingRoom) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(w.t, what) }

// at is a time about now, or none.
func (w *waitingRoom) at() cluster.Time {
	if w.draw("any time", 2) == 0 {
		return 0
	}
	return w.m.now.Add(time.Duration(w.draw("minutes", 8)-3) * time.Minute)
}

// asks says why a sitter waits that nobody has looked at.
func (s *sitter) asks(now cluster.Time) {
	if s.why = s.kept(now); s.why == "" {
		s.why = cluster.ReasonUnconfirmed
	}
}

func (w *waitingRoom) comes() {
	s := &sitter{begin: w.at(), held: w.draw("held", 4) == 0}
	sp := spec(1)
	sp.Begin, sp.Hold = s.begin, s.held
	s.id = w.m.submit(sp)
	if s.since = w.m.now; s.kept(w.m.now) != "" {
		s.since = max(w.m.now, s.begin)
	}
	s.asks(w.m.now)
	s.estimates = w.m.job(s.id).Estimates
	w.seat = append(w.seat, s)
}

func (w *waitingRoom) some() *sitter { return w.seat[w.draw("who", len(w.seat))] }

// queues puts somebody into the queue of a card, or out of it.
func (w *waitingRoom) queues(s *sitter) {
	g := rapid.SampledFrom([]cluster.GPUID{"", "n1-g0", "n1-g1"}).Draw(w.t, "card")
	r := w.m.must(planCmd(dispatch.Plan{Moves: []dispatch.QueueMove{{Job: s.id, GPU: g, Rank: int64(w.draw("rank", 3)), Reason: cluster.ReasonResources}}}))
	if got, want := r.Plan.Moved == 1, !s.runs && s.kept(w.m.now) == ""; got != want {
		w.t.Fatalf("job %d moves: %t, from the seat beside it %t; %+v", s.id, got, want, *s)
	} else if got {
		s.queue, s.why = g, cluster.ReasonResources
	}
}

// changes has somebody come later or earlier, or not wait for a time at all. Who waits
// does not begin to wait anew by that.
func (w *waitingRoom) changes(s *sitter) {
	begin := w.at()
	w.m.must(updateCmd(w.m.job(s.id), func(sp *cluster.Spec) { sp.Begin = begin }))
	if s.begin = begin; s.runs {
		return
	}
	s.since, s.queue = max(s.since, begin), ""
	s.asks(w.m.now)
}

// holds keeps somebody, or lets go; it waits from then on.
func (w *waitingRoom) holds(s *sitter) {
	release := w.draw("release", 2) == 0
	w.m.must(holdCmd(s.id, 1000, release))
	if s.held != release {
		return // no news
	}
	s.held = !release
	if s.runs {
		return
	}
	s.since, s.queue = max(w.m.now, s.begin), ""
	s.asks(w.m.now)
}

// estimates gives some of them others, all or, where one is malformed, none.
func (w *waitingRoom) estimates() {
	a, b := w.some(), w.some()
	one := []cluster.Estimate{{GPUType: "A100", GPUMemMiB: int64(1 + w.draw("mem", 9)), Source: "history"}, {GPUType: "T4", GPUMemMiB: 5}}
	two := []cluster.Estimate{{GPUType: "T4", GPUMemMiB: int64(1 + w.draw("mem", 9))}}
	if bad := w.draw("malformed", 4); bad < 2 {
		twice := [][]cluster.Estimate{{two[0], two[0]}, {one[1], one[0]}}[bad]
		w.m.refused(cluster.CodeInvalid, estimateCmd(estimated(one, a.id), estimated(twice, b.id)))
		return
	}
	w.m.must(estimateCmd(estimated(one, a.id, 99), estimated(two, b.id)))
	if !a.runs {
		a.estimates, a.estimated = one, w.m.now
	}
	if !b.runs { // the later group counts
		b.estimates, b.estimated = two, w.m.now
	}
}

func (w *waitingRoom) starts(s *sitter) {
	if s.runs {
		w.m.report(s.id, cluster.JobCompleted)
		w.seat = slices.DeleteFunc(w.seat, func(o *sitter) bool { return o == s })
		return
	}
	st := w.m.startOf(s.id, share1("n2-g0", 100, 10))
	st.Overtook = "it is smaller"
	r := w.m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}}))
	if got, want := len(r.Plan.Started) == 1, s.kept(w.m.now) == ""; got != want {
		w.t.Fatalf("job %d starts: %t, from the seat beside it %t; %+v", s.id, got, want, r.Plan)
	} else if got {
		s.runs, s.queue, s.why = true, "", ""
	}
}

func (w *waitingRoom) check(what string) {
	for _, s := range w.seat {
		j := w.m.job(s.id)
		if j.State.Live() != s.runs || j.Queue != s.queue || (j.Hold != nil) != s.held || j.Eligible != s.since || j.Reason.Code != s.why {
			w.t.Fatalf("%s: job %d is %s in %q for %s since %d; from the seat beside it %+v", what, s.id, j.State, j.Queue, j.Reason.Code, j.Eligible, *s)
		}
		if d := cmp.Diff(s.estimates, j.Estimates); d != "" || j.Estimated != s.estimated {
			w.t.Fatalf("%s: estimates of job %d of %d: %s", what, s.id, j.Estimated, d)
		}
	}
	if got, want := w.m.f.Counts()[cluster.JobPending]+w.m.f.Counts()[cluster.JobQueued], len(w.seat)-w.running(); got != want {
		w.t.Fatalf("%s: %d are counted as waiting, %d sit here", what, got, want)
	}
	for _, later := range []time.Duration{0, 2 * time.Minute} {
		now := w.m.f.Now().Add(later)
		var may []cluster.JobID
		next := cluster.Time(0)
		for _, s := range w.seat {
			switch {
			case s.runs:
			case s.kept(now) == "":
				may = append(may, s.id)
			case !s.held && (next == 0 || s.begin < next):
				next = s.begin
			}
		}
		snap, at := w.m.f.SchedulerSnapshotAt(now)
		var shown []cluster.JobID
		for _, j := range snap.Waiting {
			shown = append(shown, j.ID)
		}
		if !slices.Equal(shown, may) || at != next {
			w.t.Fatalf("%s: at %d jobs %v may start and the next at %d; from the seats beside them %v and %d", what, now, shown, at, may, next)
		}
	}
}

func (w *waitingRoom) running() (n int) {
	for _, s := range w.seat {
		if s.runs {
			n++
		}
	}
	return n
}

// TestWaitingRoom: however jobs that wait are changed, held, let go, given other
// estimates and moved from queue to queue, and whatever the clock says: each waits since
// when, where and why somebody says who sits beside it, and the planner is shown those
// that may start, and told when the next one may.
func TestWaitingRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &waitingRoom{t: t, m: newMachine(t)}
		w.m.must(initCmd("c1", 1000))
		w.m.must(registerCmd(node("n1", "boot1", 2)))
		n := node("n2", "boot1", 1)
		n.GPUs[0].MaxShares = 100
		w.m.must(registerCmd(n))
		for i := range rapid.IntRange(5, 40).Draw(t, "steps") {
			w.m.now = w.m.now.Add(time.Duration(w.draw("pause", 120)) * time.Second)
			step := w.draw("step", 10)
			switch {
			case len(w.seat) == 0 || step == 0:
				w.comes()
			case step < 4:
				w.queues(w.some())
			case step < 6:
				w.changes(w.some())
			case step < 8:
				w.holds(w.some())
			case step == 8:
				w.estimates()
			default:
				w.starts(w.some())
			}
			w.check(fmt.Sprint("step ", i))
		}
		w.m.f = restored(t, snapshotOf(t, w.m.f))
		w.check("a restore")
	})
}
