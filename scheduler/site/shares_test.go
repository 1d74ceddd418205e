package site_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// dueWorld is a sizingWorld in which jobs do as much as their cards are fast, and take
// almost as long as nine in ten do.
type dueWorld struct {
	*sizingWorld
	left map[cluster.JobID]time.Duration // what one card would take for the rest of a job
	late map[cluster.JobID]time.Duration
}

func newDueWorld(nodes int, fail func(string, ...any)) *dueWorld {
	w := &dueWorld{sizingWorld: newSizingWorld(nodes, fail), left: map[cluster.JobID]time.Duration{}, late: map[cluster.JobID]time.Duration{}}
	w.sizingWorld.due = true
	return w
}

// ask submits a job if its deadline can be promised.
func (w *dueWorld) ask(s *site.Site, j *cluster.Job) error {
	j.State, j.Eligible, j.Submitted = cluster.JobPending, w.snap.Now, w.snap.Now
	if j.Spec.Deadline > 0 {
		j.Spec.Deadline += w.snap.Now
	}
	own := w.snap
	own.Terms = nil
	if _, err := site.Admit(&own, []*cluster.Job{j}, s); err != nil {
		return err
	}
	_, _, unit := j.Spec.Sizes()
	w.left[j.ID] = time.Duration(1.2 * float64(j.Estimates[0].Duration) * speed(j.Spec.Size()*unit))
	w.snap.Waiting = append(w.snap.Waiting, j)
	return nil
}

func speed(n int) float64 { return float64(n) / (1 + 0.1*float64(n-1)) }

// pass plans with what a coordinator adds to a snapshot, and lets a minute go by.
func (w *dueWorld) pass(s *site.Site) {
	w.snap.Terms = nil
	site.Prepare(&w.snap, s, site.Full)
	w.minute(s)
	w.snap.Now = w.snap.Now.Add(time.Minute)
	for _, j := range append([]*cluster.Job(nil), w.snap.Running...) {
		a := j.Last()
		w.left[j.ID] -= time.Duration(float64(time.Minute) * speed(len(a.AllGPUs())))
		switch {
		case w.left[j.ID] <= 0:
			if by := j.Spec.Deadline; by > 0 && w.snap.Now > by {
				w.late[j.ID] = w.snap.Now.Sub(by)
			}
			w.end(j, cluster.JobCompleted)
		case a.Preempt != nil:
			w.end(j, cluster.JobPreempted)
		}
	}
}

// ranged is a job of 1 to 4 cards, with a hook, that takes a time with one; due is
// its deadline from when it comes, 0 for none.
func ranged(id cluster.JobID, takes, due time.Duration) *cluster.Job {
	return &cluster.Job{ID: id, Estimates: []cluster.Estimate{{GPUType: "T4", Duration: takes, ConfidenceMilli: 1000}}, Spec: &cluster.Spec{
		GPUs: 1, GPURange: cluster.GPURange{Min: 1, Max: 4}, Exclusive: true, Deadline: cluster.Time(due.Microseconds()),
		Checkpoint: cluster.Checkpoint{Signal: "USR1", Grace: time.Minute},
	}}
}

func dueSite(sizing elastic.Sizing) *site.Site {
	s := &site.Site{Chosen: site.Chosen{Policy: scheduler.Default(), Elastic: elastic.Rules{Sizing: sizing}}}
	s.Policy.YieldAfter, s.Policy.MaxReasons, s.Policy.DeadlineShareMilli = 0, -1, 1000
	return s
}

// TestADeadlineSizesItsJob: it starts with what its deadline needs even if others wait,
// has more if nobody does, and shrinks to what it needs when a promise needs the rest.
func TestADeadlineSizesItsJob(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	held := func(w *dueWorld, id cluster.JobID) int {
		for _, j := range w.snap.Running {
			if j.ID == id {
				return len(j.Last().Berth.GPUs)
			}
		}
		return 0
	}
	for _, sizing := range elastic.Sizings() {
		w, s := newDueWorld(1, t.Errorf), dueSite(sizing)
		for _, j := range []*cluster.Job{ranged(1, 2*h, 2*h), ranged(2, 2*h, 0), ranged(3, 2*h, 0)} {
			if err := w.ask(s, j); err != nil {
				t.Fatal(err)
			}
		}
		if w.pass(s); held(w, 1) != 2 || held(w, 2) != 1 || held(w, 3) != 1 {
			t.Errorf("%s: %d, %d and %d cards, want the two of its deadline and one each", sizing, held(w, 1), held(w, 2), held(w, 3))
		}
		w = newDueWorld(1, t.Errorf)
		if err := w.ask(s, ranged(1, 4*h, 10*h)); err != nil {
			t.Fatal(err)
		}
		want := 4
		if sizing == elastic.None {
			want = 1
		}
		if w.pass(s); held(w, 1) != want {
			t.Errorf("%s: %d cards alone, want %d", sizing, held(w, 1), want)
		}
		for range 12 { // until it may be asked
			w.pass(s)
		}
		tight := ranged(2, 2*h, h+30*time.Minute) // three
		if err := w.ask(s, tight); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w.pass(s)
		}
		if held(w, 1) != 1 || held(w, 2) != 3 {
			t.Errorf("%s: %d and %d cards, want 1 and 3", sizing, held(w, 1), held(w, 2))
		}
	}
}

// TestPromisedRangesAreKept: whatever else comes, who was promised its end by a sure
// prediction has ended by then.
func TestPromisedRangesAreKept(t *testing.T) {
	t.Parallel()
	for _, sizing := range []elastic.Sizing{elastic.None, elastic.Marginal, elastic.AFS} {
		t.Run(string(sizing), func(t *testing.T) {
			t.Parallel()
			promises, refusals, wide := 0, 0, 0
			rapid.Check(t, func(t *rapid.T) {
				w, s := newDueWorld(rapid.IntRange(1, 3).Draw(t, "nodes"), t.Errorf), dueSite(sizing)
				for id := cluster.JobID(1); w.snap.Now < cluster.Time(1e15).Add(150*time.Minute); {
					for range rapid.IntRange(-4, 2).Draw(t, "come") {
						takes := time.Duration(rapid.IntRange(5, 90).Draw(t, "takes")) * time.Minute
						due := time.Duration(0)
						if rapid.IntRange(0, 2).Draw(t, "due") > 0 {
							due = time.Duration(rapid.IntRange(5, 200).Draw(t, "by")) * time.Minute
						}
						j := ranged(id, takes, due)
						if rapid.Bool().Draw(t, "no hook") {
							j.Spec.Checkpoint = cluster.Checkpoint{}
						}
						if rapid.IntRange(0, 3).Draw(t, "fixed") == 0 {
							j.Spec.GPUs, j.Spec.GPURange = rapid.IntRange(1, 3).Draw(t, "cards"), cluster.GPURange{}
						}
						if err := w.ask(s, j); err != nil {
							refusals++
						} else if due > 0 {
							promises++
						}
						id++
					}
					for _, j := range w.snap.Running {
						if j.Spec.Deadline > 0 && j.Spec.GPUs > 1 && j.Spec.Elastic() {
							wide++
						}
					}
					w.pass(s)
				}
				for range 3000 {
					if len(w.snap.Waiting)+len(w.snap.Running) == 0 {
						break
					}
					w.pass(s)
				}
				for id, by := range w.late {
					t.Errorf("job %d ends %s late", id, by)
				}
				if n := len(w.snap.Waiting) + len(w.snap.Running); n > 0 {
					t.Errorf("%d jobs have not ended", n)
				}
			})
			if promises == 0 || refusals == 0 || wide == 0 {
				t.Errorf("%d promises, %d refusals, %d times more than one card", promises, refusals, wide)
			}
		})
	}
}
