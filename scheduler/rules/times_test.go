package rules_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

const (
	minute = time.Minute
	hour   = time.Hour
)

// tried is an attempt that began so long ago and ran for so long, as it ended.
type tried struct {
	ago, ran time.Duration
	state    cluster.JobState
}

func withAttempts(j *cluster.Job, ts ...tried) *cluster.Job {
	for i, x := range ts {
		a := cluster.Attempt{No: uint32(i + 1), State: x.state, Placed: schedtest.Now.Add(-x.ago), Started: schedtest.Now.Add(-x.ago)}
		if !x.state.Live() {
			a.Ended = a.Started.Add(x.ran)
		}
		j.Attempts = append(j.Attempts, a)
	}
	return j
}

// TestHadByHand: what a job ran in attempts that it goes on from, and since it was
// promoted last: after eight times as long as that of waiting, and no less than least.
func TestHadByHand(t *testing.T) {
	t.Parallel()
	const preempted, failed, running = cluster.JobPreempted, cluster.JobFailed, cluster.JobRunning
	for _, c := range []struct {
		name       string
		least      time.Duration
		ts         []tried
		all, since time.Duration
	}{
		{"never ran", 0, nil, 0, 0},
		{"runs", 0, []tried{{5 * minute, 0, running}}, 5 * minute, 5 * minute},
		{"made room", 0, []tried{{20 * minute, 10 * minute, preempted}}, 10 * minute, 10 * minute},
		{"what failed is lost", 0, []tried{{20 * minute, 10 * minute, failed}}, 0, 0},
		{"not yet eight times", 0, []tried{{89 * minute, 10 * minute, preempted}}, 10 * minute, 10 * minute},
		{"eight times", 0, []tried{{90 * minute, 10 * minute, preempted}}, 10 * minute, 0},
		{"but no less than an hour and a half", 90 * minute, []tried{{99 * minute, 10 * minute, preempted}}, 10 * minute, 10 * minute},
		{"an hour and a half", 90 * minute, []tried{{100 * minute, 10 * minute, preempted}}, 10 * minute, 0},
		{"twice, with no wait between", 0, []tried{{40 * minute, 10 * minute, preempted}, {30 * minute, 20 * minute, preempted}}, 30 * minute, 30 * minute},
		{"promoted between", 0, []tried{{200 * minute, 10 * minute, preempted}, {110 * minute, 20 * minute, preempted}}, 30 * minute, 20 * minute},
		{"promoted, and runs", 0, []tried{{100 * minute, 10 * minute, preempted}, {5 * minute, 0, running}}, 15 * minute, 5 * minute},
		{"a failure between is a wait", 0, []tried{{200 * minute, 10 * minute, preempted}, {180 * minute, 60 * minute, failed}, {110 * minute, 20 * minute, preempted}}, 30 * minute, 20 * minute},
		{"while it runs it does not wait", 0, []tried{{300 * minute, 10 * minute, preempted}, {289 * minute, 0, running}}, 299 * minute, 299 * minute},
	} {
		j := withAttempts(schedtest.Job(1, schedtest.Waited(400*minute)), c.ts...)
		all, since := rules.Had(j, int64(schedtest.Now), c.least)
		if all != c.all.Microseconds() || since != c.since.Microseconds() {
			t.Errorf("%s: %s, since %s; want %s, %s", c.name, time.Duration(all)*time.Microsecond, time.Duration(since)*time.Microsecond, c.all, c.since)
		}
	}
}

// TestLeftByHand: a prediction less what the job had; without one, or when it had
// more, as long again as since it was promoted, but no less than a whole run.
func TestLeftByHand(t *testing.T) {
	t.Parallel()
	ran := func(d time.Duration) []tried { return []tried{{ago: d, ran: d, state: cluster.JobPreempted}} }
	for _, c := range []struct {
		name                string
		predicted, declared time.Duration
		limit               time.Duration
		ts                  []tried
		progress            *cluster.Progress
		want                time.Duration
	}{
		{"not begun", 3 * hour, 0, 0, nil, nil, 3 * hour},
		{"a third is done", 3 * hour, 0, 0, ran(hour), nil, 2 * hour},
		{"declared", 0, 3 * hour, 0, ran(hour), nil, 2 * hour},
		{"outlived", hour, 0, 0, ran(3 * hour), nil, 3 * hour},
		{"just outlived", hour, 0, 0, ran(hour), nil, hour},
		{"nobody knows", 0, 0, 0, nil, nil, hour},
		{"nobody knows, and it ran for long", 0, 0, 0, ran(3 * hour), nil, 3 * hour},
		{"nobody knows, and it was promoted since", 0, 0, 0, []tried{{30 * hour, 3 * hour, cluster.JobPreempted}}, nil, hour},
		{"nobody knows, and it ran shortly", 0, 0, 0, ran(minute), nil, hour},
		{"a limit tells nothing of what is left", 0, 0, 2 * hour, ran(hour), nil, 2 * hour},
		{"it says so itself", 3 * hour, 0, 0, []tried{{hour, 0, cluster.JobRunning}}, &cluster.Progress{Step: 10, Total: 40, StepTime: minute, At: schedtest.Now}, 30 * minute},
		{"as of when it said so", 3 * hour, 0, 0, []tried{{hour, 0, cluster.JobRunning}}, &cluster.Progress{Step: 10, Total: 40, StepTime: minute, At: schedtest.Now.Add(-10 * minute)}, 20 * minute},
		{"a second at least", 3 * hour, 0, 0, []tried{{hour, 0, cluster.JobRunning}}, &cluster.Progress{Step: 40, Total: 40, StepTime: minute, At: schedtest.Now}, time.Second},
		{"who waits is not believed", 3 * hour, 0, 0, ran(hour), &cluster.Progress{Step: 39, Total: 40, StepTime: minute, At: schedtest.Now}, 2 * hour},
	} {
		j := withAttempts(schedtest.Job(1, schedtest.Waited(5*hour), schedtest.Lasts(c.declared), schedtest.Limit(c.limit)), c.ts...)
		if a := j.Last(); a != nil {
			a.Progress = c.progress
		}
		pol := rules.Default()
		if got := rules.LeftOf(j, &cluster.Estimate{Duration: c.predicted}, int64(schedtest.Now), &pol); got != c.want.Microseconds() {
			t.Errorf("%s: %s, want %s", c.name, time.Duration(got)*time.Microsecond, c.want)
		}
	}
}

// TestYieldCostByHand: as long as it took to save its state when it last did, or its
// grace, and a minute to begin anew.
func TestYieldCostByHand(t *testing.T) {
	t.Parallel()
	asked := func(ended, saved time.Duration, state cluster.JobState) cluster.Attempt {
		return cluster.Attempt{State: state, Ended: schedtest.Now.Add(-ended), Preempt: &cluster.PreemptRequest{At: schedtest.Now.Add(-ended - saved)}}
	}
	for name, c := range map[string]struct {
		as   []cluster.Attempt
		want time.Duration
	}{
		"never did":            {nil, 6 * minute},
		"once":                 {[]cluster.Attempt{asked(hour, 2*minute, cluster.JobPreempted)}, 3 * minute},
		"the last counts":      {[]cluster.Attempt{asked(2*hour, 2*minute, cluster.JobPreempted), asked(hour, minute, cluster.JobPreempted)}, 2 * minute},
		"failing to counts no": {[]cluster.Attempt{asked(2*hour, 2*minute, cluster.JobPreempted), asked(hour, minute, cluster.JobFailed)}, 3 * minute},
		"other ends count no":  {[]cluster.Attempt{{State: cluster.JobPreempted, Ended: schedtest.Now}}, 6 * minute},
	} {
		j := schedtest.Job(1)
		j.Spec.Checkpoint.Grace, j.Attempts = 5*minute, c.as
		if got := rules.YieldCost(j); got != c.want.Microseconds() {
			t.Errorf("%s: %s, want %s", name, time.Duration(got)*time.Microsecond, c.want)
		}
	}
}

// TestWhoGoesOn: who ran before and can save its state, where jobs make room at all.
func TestWhoGoesOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ran, hook, yields, want bool }{
		{true, true, true, true}, {false, true, true, false}, {true, false, true, false}, {true, true, false, false},
	} {
		j, pol := schedtest.Job(1), rules.Default()
		if c.ran {
			withAttempts(j, tried{hour, minute, cluster.JobPreempted})
		}
		if c.hook {
			j.Spec.Checkpoint.Signal = "USR1"
		}
		if !c.yields {
			pol.YieldAfter = 0
		}
		if got := pol.GoesOn(j); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestStretchedAsDefined: nine in ten last at most 3 times as long as a guess says and
// 1.5 times as long as a confident prediction, in between in proportion, and nobody
// longer than its limit.
func TestStretchedAsDefined(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "microseconds")) * time.Microsecond
		sure := rapid.Int64Range(-10, 1100).Draw(t, "confidence")
		limit := time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "limit")) * time.Microsecond
		e := cluster.Estimate{ConfidenceMilli: sure}
		times := 3 - 1.5*math.Max(0, math.Min(1, float64(sure)/1000))
		want := map[rules.Quantile]float64{rules.Middle: float64(d.Microseconds()), rules.Tail: float64(d.Microseconds()) * times}
		for q, w := range want {
			if limit > 0 {
				w = math.Min(w, float64(limit.Microseconds()))
			}
			got := float64(rules.Stretched(d.Microseconds(), q, &e, limit))
			if got < 1 || got > math.Max(1, w*1.001) || got < w-w*0.001-3000 {
				t.Fatalf("quantile %d: %f, want %f", q, got, w)
			}
		}
	})
}

// TestEndsAreInOrder: nobody ends in the past; the middle comes before the tail, what
// is expected before the latest, none after a limit that lies ahead, and who makes
// room ends with its grace.
func TestEndsAreInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		minutes := func(lo, hi int, what string) time.Duration {
			return time.Duration(rapid.IntRange(lo, hi).Draw(t, what)) * minute
		}
		now, pol := int64(schedtest.Now), rules.Default()
		j := schedtest.Job(1, schedtest.Lasts(minutes(0, 300, "declared")), schedtest.Limit(minutes(0, 400, "limit")))
		j.Spec.Checkpoint.Grace = minutes(0, 30, "grace")
		began := schedtest.Now.Add(-minutes(0, 500, "began"))
		a := &cluster.Attempt{No: 1, State: cluster.JobRunning, Placed: began.Add(-minutes(0, 5, "placed")), Started: began,
			Estimate: cluster.Estimate{Duration: minutes(0, 300, "predicted"), ConfidenceMilli: rapid.Int64Range(0, 1000).Draw(t, "sure")}}
		if rapid.Bool().Draw(t, "says how far") {
			total := rapid.Int64Range(1, 100).Draw(t, "steps")
			a.Progress = &cluster.Progress{Total: total, Step: rapid.Int64Range(0, total).Draw(t, "step"), StepTime: minutes(0, 9, "a step"), At: schedtest.Now.Add(-minutes(0, 20, "said"))}
		}
		expected, latest := rules.EndsAt(j, a, now, &pol)
		middle, tail := rules.EndAt(j, a, rules.Middle, now, &pol), rules.EndAt(j, a, rules.Tail, now, &pol)
		if expected <= now || middle <= now || latest < expected || tail < middle {
			t.Fatalf("expected %d, latest %d, middle %d, tail %d from now", expected-now, latest-now, middle-now, tail-now)
		}
		if l := j.Spec.TimeLimit; l > 0 {
			bound := max(int64(began.Add(l)), now+1_000_000)
			if latest > bound || tail > bound {
				t.Fatalf("latest %d, tail %d beyond the limit %d", latest-now, tail-now, bound-now)
			}
			if latest != bound {
				t.Fatalf("the latest end is %d, the limit %d", latest-now, bound-now)
			}
		}
		a.Preempt = &cluster.PreemptRequest{At: schedtest.Now.Add(-minutes(0, 40, "asked"))}
		gone := max(now+1_000_000, int64(a.Preempt.At.Add(j.Spec.Checkpoint.Grace)))
		e2, l2 := rules.EndsAt(j, a, now, &pol)
		m2, t2 := rules.EndAt(j, a, rules.Middle, now, &pol), rules.EndAt(j, a, rules.Tail, now, &pol)
		for _, x := range [][3]int64{{e2, expected, 0}, {l2, latest, 1}, {m2, middle, 2}, {t2, tail, 3}} {
			if x[0] != min(x[1], gone) {
				t.Fatalf("end %d of who makes room: in %d, want in %d", x[2], x[0]-now, min(x[1], gone)-now)
			}
		}
	})
}

// TestOwnWordOfTheEnd: a job that says how far it is ends by that, half as long again
// at the tail, and not beyond its limit.
func TestOwnWordOfTheEnd(t *testing.T) {
	t.Parallel()
	now, pol := int64(schedtest.Now), rules.Default()
	for _, c := range []struct {
		name         string
		limit        time.Duration
		said         time.Duration
		middle, tail time.Duration
	}{
		{"just said", 0, 0, 20 * minute, 30 * minute},
		{"said before", 0, 5 * minute, 15 * minute, 25 * minute},
		{"a limit between", 85 * minute, 0, 20 * minute, 25 * minute},
		{"a limit before", 70 * minute, 0, 10 * minute, 10 * minute},
	} {
		j := schedtest.Job(1, schedtest.Limit(c.limit))
		a := &cluster.Attempt{State: cluster.JobRunning, Started: schedtest.Now.Add(-hour), Placed: schedtest.Now.Add(-hour),
			Estimate: cluster.Estimate{Duration: 9 * hour}, Progress: &cluster.Progress{Step: 80, Total: 100, StepTime: minute, At: schedtest.Now.Add(-c.said)}}
		middle, tail := rules.EndAt(j, a, rules.Middle, now, &pol), rules.EndAt(j, a, rules.Tail, now, &pol)
		if middle != now+c.middle.Microseconds() || tail != now+c.tail.Microseconds() {
			t.Errorf("%s: in %d and %d s, want %s and %s", c.name, (middle-now)/1e6, (tail-now)/1e6, c.middle, c.tail)
		}
	}
}

// TestServicesLast: a replica is not taken to end, whatever earlier ones did, but by its limit.
func TestServicesLast(t *testing.T) {
	t.Parallel()
	pol := &rules.Policy{AssumedDuration: time.Hour}
	j := &cluster.Job{Spec: &cluster.Spec{Service: &service.Service{Name: "web"}}}
	e := &cluster.Estimate{Duration: time.Minute}
	if got := rules.DurationOf(j, e, pol); got != (cluster.MaxTimeDays * 24 * time.Hour).Microseconds() {
		t.Errorf("it lasts %d µs", got)
	}
	if now := cluster.Time(7); j.LatestEnd(now) != math.MaxInt64 {
		t.Errorf("it ends at %d at the latest", j.LatestEnd(now))
	}
	if got := say.TimeWords(j, "A100", 1); got != "runs until it is ended" {
		t.Errorf("%q", got)
	}
	j.Spec.TimeLimit = time.Hour
	if got := rules.DurationOf(j, e, pol); got != time.Hour.Microseconds() || j.LatestEnd(0) != cluster.Time(time.Hour.Microseconds()) {
		t.Errorf("within its limit it lasts %d µs", got)
	}
}
