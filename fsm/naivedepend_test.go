package fsm

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// story is what a test saw of a job or of one task: whether it ever began, and how
// it ended, if it did.
type story struct {
	began, over, good bool
}

// unitOf is a job, or an array: what was asked for, and the story of each task.
type unitOf struct {
	id      cluster.JobID
	spec    *cluster.Spec
	numbers []int // of the tasks; nil for a job
	tasks   []*story
}

func (u *unitOf) all(is func(*story) bool) bool {
	return !slices.ContainsFunc(u.tasks, func(s *story) bool { return !is(s) })
}

func (u *unitOf) any(is func(*story) bool) bool { return slices.ContainsFunc(u.tasks, is) }

func over(s *story) bool { return s.over }
func good(s *story) bool { return s.over && s.good }
func bad(s *story) bool  { return s.over && !s.good }
func seen(s *story) bool { return s.began || s.over }

// waitsOn is how one thing that a unit waits for stands, told from the stories of
// the other: still open, met, or never to be.
func waitsOn(kind cluster.DependKind, on *unitOf) cluster.DependState {
	ends := func(met, never bool) cluster.DependState {
		switch {
		case met:
			return cluster.DependMet
		case never:
			return cluster.DependFailed
		}
		return cluster.DependOpen
	}
	switch kind {
	case cluster.After:
		return ends(on.all(seen), false)
	case cluster.AfterAny:
		return ends(on.all(over), false)
	case cluster.AfterNotOK:
		return ends(on.all(over) && on.any(bad), on.all(good))
	}
	return ends(on.all(good), on.any(bad))
}

// chronicle is all that was submitted, in order.
type chronicle struct {
	t     *rapid.T
	m     *machine
	units []*unitOf
}

func (c *chronicle) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(c.t, what) }

func (c *chronicle) unit(id cluster.JobID) *unitOf {
	for _, u := range c.units {
		if u.id == id {
			return u
		}
	}
	return nil
}

// stands is how all that a task waits for stands together.
func (c *chronicle) stands(u *unitOf, k int) cluster.DependState {
	met, failed := 0, 0
	for _, d := range u.spec.Depends {
		st := cluster.DependOpen
		on := c.unit(d.Job)
		switch {
		case d.Kind == cluster.Singleton:
			st = cluster.DependMet
			for _, o := range c.units {
				if o.id < u.id && o.spec.Name == u.spec.Name && !o.all(over) {
					st = cluster.DependOpen
				}
			}
		case d.OneTask:
			at := slices.Index(on.numbers, int(d.Task))
			st = waitsOn(d.Kind, &unitOf{tasks: on.tasks[at : at+1]})
		case d.Kind == cluster.AfterCorr && u.numbers != nil && on.numbers != nil:
			if at := slices.Index(on.numbers, u.numbers[k]); at >= 0 {
				st = waitsOn(d.Kind, &unitOf{tasks: on.tasks[at : at+1]})
			} else {
				st = cluster.DependFailed // nothing has that number
			}
		default:
			st = waitsOn(d.Kind, on)
		}
		switch st {
		case cluster.DependMet:
			met++
		case cluster.DependFailed:
			failed++
		}
	}
	n := len(u.spec.Depends)
	switch {
	case n == 0, met == n, u.spec.DependAny && met > 0:
		return cluster.DependMet
	case u.spec.DependAny && failed < n, !u.spec.DependAny && failed == 0:
		return cluster.DependOpen
	}
	return cluster.DependFailed
}

// settle carries on what follows: who can never start and asked for it is cancelled,
// which others may wait for.
func (c *chronicle) settle() {
	for again := true; again; {
		again = false
		for _, u := range c.units {
			for k, s := range u.tasks {
				if u.spec.KillInvalidDepend && !s.over && !s.began && c.stands(u, k) == cluster.DependFailed {
					s.over, again = true, true
				}
			}
		}
	}
}

func (c *chronicle) check(what string) {
	c.settle()
	for _, u := range c.units {
		for k, s := range u.tasks {
			j := c.m.job(u.id + cluster.JobID(k))
			if j.State.Terminal() != s.over || s.over && (j.State == cluster.JobCompleted) != s.good {
				c.t.Fatalf("%s: job %s is %s (%s); it was seen as %+v", what, j.Label(), j.State, j.Reason, *s)
			}
			if s.over || j.State.Live() {
				continue
			}
			want := map[cluster.DependState]cluster.ReasonCode{cluster.DependOpen: cluster.ReasonDependency, cluster.DependFailed: cluster.ReasonDependNever}[c.stands(u, k)]
			if got := j.Barred(c.m.now).Code; got != want {
				c.t.Fatalf("%s: job %s waits for %v (any %t, %v): barred %q, want %q", what, j.Label(), u.spec.Depends, u.spec.DependAny, j.Depends, got, want)
			}
		}
	}
}

func (c *chronicle) submit() string {
	u := &unitOf{spec: spec(0)}
	u.spec.Name = rapid.SampledFrom([]string{"x", "y"}).Draw(c.t, "name")
	if c.draw("array", 2) == 0 {
		u.spec.Array, _ = cluster.ParseArray(rapid.SampledFrom([]string{"0-2", "1-3", "2,4-5", "0-4:2%2"}).Draw(c.t, "tasks"))
		for k := range u.spec.Array.Tasks.Len() {
			u.numbers = append(u.numbers, int(u.spec.Array.Tasks.At(k)))
		}
	}
	for range c.draw("waits for", 3) {
		d := cluster.Dependency{Kind: rapid.SampledFrom(cluster.DependKinds()).Draw(c.t, "kind")}
		if d.Kind != cluster.Singleton {
			if len(c.units) == 0 {
				continue
			}
			on := c.units[c.draw("on", len(c.units))]
			if d.Job = on.id; on.numbers != nil && d.Kind != cluster.AfterCorr && c.draw("one task", 3) == 0 {
				d.OneTask, d.Task = true, uint32(on.numbers[c.draw("task", len(on.numbers))])
			}
		}
		u.spec.Depends = append(u.spec.Depends, d)
	}
	u.spec.DependAny, u.spec.KillInvalidDepend = c.draw("any", 2) == 0, c.draw("kill", 3) == 0
	u.id = c.m.submit(u.spec)
	for range max(1, len(u.numbers)) {
		u.tasks = append(u.tasks, &story{})
	}
	c.units = append(c.units, u)
	return fmt.Sprintf("submit of job %d", u.id)
}

// act has one task come further.
func (c *chronicle) act() string {
	if len(c.units) == 0 {
		return ""
	}
	u := c.units[c.draw("job", len(c.units))]
	k := c.draw("task", len(u.tasks))
	s, id := u.tasks[k], u.id+cluster.JobID(k)
	j := c.m.job(id)
	switch how := c.draw("how", 6); {
	case s.over:
		return ""
	case j.State.Waiting() && how == 0:
		c.m.must(cancelCmd(id, 0))
		s.over = true
	case j.State.Waiting():
		// It starts if it may, by what is free of the array, too.
		r := c.m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{c.m.startOf(id)}}))
		if may := c.stands(u, k) == cluster.DependMet; len(r.Plan.Started) == 1 && !may {
			c.t.Fatalf("job %s starts and waits for %v", j.Label(), u.spec.Depends)
		} else if may && len(r.Plan.Started) == 0 && (u.spec.Array == nil || u.spec.Array.Throttle == 0) {
			c.t.Fatalf("job %s does not start: %+v", j.Label(), r.Plan.Rejected)
		} else if len(r.Plan.Started) == 1 {
			s.began = true
		}
	case how == 0: // it waits again, and has begun once for all that
		c.m.must(requeueCmd(id, 0, false))
		c.m.report(id, cluster.JobCancelled)
	case how < 3:
		c.m.report(id, cluster.JobFailed)
		s.over = true
	default:
		c.m.report(id, cluster.JobCompleted)
		s.over, s.good = true, true
	}
	return fmt.Sprintf("job %s", j.Label())
}

// cancelSome ends tasks of an array together.
func (c *chronicle) cancelSome() string {
	if len(c.units) == 0 {
		return ""
	}
	u := c.units[c.draw("array", len(c.units))]
	if u.numbers == nil {
		return ""
	}
	n := u.numbers[c.draw("from", len(u.numbers))]
	c.m.must(tasksCmd(changeCmd(u.id, fmt.Sprintf("%d-%d", n, n+1), logv1.TaskChange_TASK_CHANGE_CANCEL)))
	for k, s := range u.tasks {
		if x := u.numbers[k]; (x == n || x == n+1) && !s.over {
			if c.m.job(u.id + cluster.JobID(k)).State.Live() {
				c.m.report(u.id+cluster.JobID(k), cluster.JobCancelled)
			}
			s.over = true
		}
	}
	return fmt.Sprintf("cancel of %d-%d of array %d", n, n+1, u.id)
}

// TestWhoWaitsForWhom: jobs, arrays and their tasks wait for each other in every
// way that there is; whatever becomes of them, alone, together and again, each may
// start exactly when the stories of the others say so, and who can never start is
// cancelled if it asked for that.
func TestWhoWaitsForWhom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &chronicle{t: t, m: newMachine(t)}
		c.m.must(initCmd("c1", 1000))
		c.m.must(registerCmd(node("n1", "boot1", 1)))
		steps := []func() string{c.submit, c.submit, c.act, c.act, c.act, c.act, c.act, c.cancelSome}
		for range rapid.IntRange(8, 40).Draw(t, "steps") {
			if what := steps[c.draw("step", len(steps))](); what != "" {
				c.check(what)
			}
			if c.draw("restart", 10) == 0 {
				c.m.f = restored(t, snapshotOf(t, c.m.f))
				c.check("a restore")
			}
		}
	})
}
