package fsm

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// partStory is what was said of a gang's part on one node.
type partStory struct {
	state cluster.JobState
	ready bool
	began bool
	peak  int64
	milli int64
	boot  string
}

// ensemble is a gang, told part by part.
type ensemble struct {
	t         *rapid.T
	m         *machine
	id        cluster.JobID
	survives  bool
	parts     []*partStory
	goes      bool
	decided   int // one more than the rank of the part that failed first
	undone    bool
	cancelled bool
	asked     bool // to be requeued
	silent    map[int]bool
	over      cluster.JobState // how the job ended, or JobPending when it waits again
}

func (e *ensemble) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(e.t, what) }

func (e *ensemble) count(is func(*partStory) bool) (n int) {
	for _, p := range e.parts {
		if is(p) {
			n++
		}
	}
	return n
}

func alive(p *partStory) bool { return p.state.Live() }

// is what the whole is while some part lives.
func (e *ensemble) is() cluster.JobState {
	in := func(st cluster.JobState) int {
		return e.count(func(p *partStory) bool { return p.state == st })
	}
	switch {
	case in(cluster.JobUnreachable) > 0:
		return cluster.JobUnreachable
	case e.decided > 0 || e.undone || in(cluster.JobCompleting) == e.count(alive):
		return cluster.JobCompleting
	case in(cluster.JobStarting) > 0:
		return cluster.JobStarting
	}
	return cluster.JobRunning
}

// ends tells how a part ended, and what follows for the whole.
func (e *ensemble) ends(rank int, as cluster.JobState) {
	p := e.parts[rank]
	p.state = as
	stopping := e.decided > 0 || e.undone
	wanted := as == cluster.JobCompleted || e.cancelled && as == cluster.JobCancelled || e.asked && (as == cluster.JobCancelled || as == cluster.JobPreempted)
	if !stopping && !wanted {
		e.decided = rank + 1
	}
	if e.count(alive) > 0 {
		return
	}
	made := e.count(func(p *partStory) bool {
		return p.state == cluster.JobPreempted || e.asked && p.state == cluster.JobCancelled
	})
	how := e.parts[max(0, e.decided-1)].state
	switch {
	case e.decided > 0:
	case e.undone:
		how = cluster.JobFailed
	case made > 0:
		how = cluster.JobPreempted
	}
	switch {
	case e.cancelled:
		e.over = cluster.JobCancelled
	case e.asked && (how == cluster.JobPreempted || how == cluster.JobCancelled):
		e.over = cluster.JobPending
	case !e.goes && (how == cluster.JobFailed || how == cluster.JobNodeFail): // nothing of it ran
		e.over = cluster.JobPending
	case how == cluster.JobNodeFail && (e.survives || e.asked):
		e.over = cluster.JobPending
	default:
		e.over = how
	}
}

// check holds the parts against the machine: the whole follows from them, and each
// node's card is free when its part has ended.
func (e *ensemble) check(what string) {
	j := e.m.job(e.id)
	a := j.Last()
	for rank, card := range []cluster.GPUID{"n1-g0", "n2-g0", "n3-g0"} {
		if got, want := e.m.taken(card), map[bool]int{true: 1}[e.parts[rank].state.Live()]; got != want {
			e.t.Fatalf("%s: %d shares of %s are taken, its part is %s", what, got, card, e.parts[rank].state)
		}
	}
	if e.over != 0 {
		if j.State != e.over || a.Gang.Go != e.goes {
			e.t.Fatalf("%s: the job is %s (%s), told by its parts %s: %+v, the first that failed %d, undone %t, asked %t, cancelled %t", what, j.State, j.Reason, e.over, e.all(), e.decided, e.undone, e.asked, e.cancelled)
		}
		peak, milli := int64(0), int64(0)
		for _, p := range e.parts {
			peak = max(peak, p.peak)
			milli += p.milli
		}
		if a.Usage.GPUMemPeakMiB != peak || a.Usage.Milli != milli/3 {
			e.t.Fatalf("%s: it used %d MiB and %d thousandths; of its parts the most is %d, the mean %d", what, a.Usage.GPUMemPeakMiB, a.Usage.Milli, peak, milli/3)
		}
		if e.decided > 0 && !strings.HasPrefix(a.Reason.Detail, "node n"+string(rune('0'+e.decided))) && !e.cancelled && !e.asked {
			e.t.Fatalf("%s: it ended for %s, the first that failed was node n%d", what, a.Reason, e.decided)
		}
		return
	}
	if j.State != e.is() || a.Gang.Go != e.goes || a.Gang.First != e.decided || (a.Gang.Undo.Code != "") != e.undone {
		e.t.Fatalf("%s: the job is %s, goes %t, first %d, undo %q; by its parts %s: %+v, goes %t, first %d, undone %t", what, j.State, a.Gang.Go, a.Gang.First, a.Gang.Undo.Code, e.is(), e.all(), e.goes, e.decided, e.undone)
	}
	for rank, p := range e.parts {
		if got := a.Gang.Parts[rank]; got.State != p.state || got.Ready != p.ready {
			e.t.Fatalf("%s: part %d is %s, ready %t; it was said to be %+v", what, rank, got.State, got.Ready, *p)
		}
	}
}

func (e *ensemble) all() (out []partStory) {
	for _, p := range e.parts {
		out = append(out, *p)
	}
	return out
}

func (e *ensemble) report() string {
	rank := e.draw("rank", 3)
	p := e.parts[rank]
	if e.silent[rank] {
		return ""
	}
	to := rapid.SampledFrom([]cluster.JobState{
		cluster.JobStarting, cluster.JobStarting, cluster.JobRunning, cluster.JobRunning, cluster.JobRunning, cluster.JobCompleting, cluster.JobCompleted, cluster.JobCompleted,
		cluster.JobFailed, cluster.JobCancelled, cluster.JobPreempted,
	}).Draw(e.t, "says")
	r := e.m.partOf(e.id, rank, to, to == cluster.JobStarting && e.draw("ready", 4) > 0)
	peak, milli, absurd := int64(e.draw("peak", 40))*1000, int64(e.draw("milli", 5))*250, false
	if to.Terminal() {
		if e.draw("absurd", 4) == 0 {
			peak, absurd = 1_000_000, true // of a card of 40,960
		}
		r.Usage = &logv1.Usage{GpuMemPeakMib: peak, Milli: milli}
	}
	res := e.m.must(reportCmd(r))
	if !alive(p) {
		if !res.Released || res.Absurd {
			e.t.Fatalf("a report of a part that has ended: %+v", res)
		}
		return "of a part that has ended"
	}
	if to.Terminal() {
		if res.Absurd != absurd || !res.Released {
			e.t.Fatalf("a part used %d MiB: absurd %t, want %t", peak, res.Absurd, absurd)
		}
		if !absurd {
			p.peak, p.milli = peak, milli
		}
		e.ends(rank, to)
		return "end of a part as " + to.String()
	}
	height := map[cluster.JobState]int{cluster.JobStarting: 1, cluster.JobRunning: 2, cluster.JobCompleting: 3}
	switch {
	case r.Ready && !p.ready && !p.began:
		if p.ready = true; p.state == cluster.JobUnreachable {
			p.state = cluster.JobStarting
		}
	case p.state != cluster.JobUnreachable && height[to] <= height[p.state], to == cluster.JobStarting && p.began:
		return "no news"
	}
	p.state = to
	if to != cluster.JobStarting {
		p.ready, p.began = true, true
	}
	if e.count(func(p *partStory) bool { return !p.ready }) == 0 && e.decided == 0 && !e.undone && !e.cancelled && !e.asked {
		e.goes = true
	}
	return "report of " + to.String()
}

// node is what befalls one of the nodes.
func (e *ensemble) node() string {
	rank := e.draw("rank", 3)
	n, p := cluster.NodeID("n"+string(rune('1'+rank))), e.parts[rank]
	switch e.draw("node", 4) {
	case 0:
		e.m.must(silentCmd(n, p.boot))
		if e.silent[rank] = true; alive(p) {
			p.state = cluster.JobUnreachable
		}
		return "silence"
	case 1:
		e.m.must(registerCmd(node(n, p.boot, 2)))
		if e.silent[rank] = false; p.state == cluster.JobUnreachable {
			if p.state = cluster.JobStarting; p.began {
				p.state = cluster.JobRunning
			}
		}
		return "back"
	case 2:
		p.boot += "x"
		e.m.must(registerCmd(node(n, p.boot, 2)))
		if e.silent[rank] = false; alive(p) {
			e.ends(rank, cluster.JobNodeFail)
		}
		return "another boot"
	}
	if !e.silent[rank] {
		return ""
	}
	r := e.m.must(fenceCmd(n))
	had := alive(p)
	if had {
		e.ends(rank, cluster.JobNodeFail)
	}
	again := e.over == cluster.JobPending || e.over == 0 && (e.survives || !e.goes)
	if got := len(r.Requeued); had && got != map[bool]int{true: 1}[again] || !had && len(r.Lost)+got > 0 {
		e.t.Fatalf("a fence says %+v; the part was there: %t, and the job waits again: %t", r, had, again)
	}
	return "fence"
}

func (e *ensemble) ask() string {
	switch e.draw("ask", 3) {
	case 0:
		e.m.must(cancelCmd(e.id, 0))
		e.cancelled = true
		return "cancel"
	case 1:
		r := e.m.do(requeueCmd(e.id, 0, false))[0]
		if want := !e.cancelled && !e.asked && e.is() != cluster.JobCompleting; (r.Err == nil) != want {
			e.t.Fatalf("requeue: %v, want it done: %t", r.Err, want)
		} else if want {
			e.asked = true
		}
		return "requeue"
	}
	r := e.m.do(undoCmd(e.id, 1))[0]
	if (r.Err == nil) == e.goes {
		e.t.Fatalf("undo: %v, it goes: %t", r.Err, e.goes)
	}
	if !e.goes && e.decided == 0 {
		e.undone = true
	}
	return "undo"
}

// TestGangPartByPart: whatever the agents of three nodes say, and whatever befalls
// them, a gang starts when all are ready and nobody has asked for its end, is what
// its parts are, ends as the first that failed, holds each card until its part has
// ended, and learns nothing from figures that cannot be.
func TestGangPartByPart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := &ensemble{t: t, m: newMachine(t), silent: map[int]bool{}}
		e.m.must(initCmd("c1", 1000))
		for _, n := range []cluster.NodeID{"n1", "n2", "n3"} {
			e.m.must(registerCmd(node(n, "boot1", 2)))
			e.parts = append(e.parts, &partStory{state: cluster.JobStarting, boot: "boot1"})
		}
		s := spec(1)
		e.survives = e.draw("survives", 2) == 0
		s.RequeueOnLoss = e.survives
		e.id = e.m.gangOn(s, "n1-g0", "n2-g0", "n3-g0")
		if e.draw("all are ready", 2) == 0 {
			e.m.ready(e.id, 0, 1, 2)
			for _, p := range e.parts {
				p.ready = true
			}
			e.goes = true
		}
		e.check("placed")
		steps := []func() string{e.report, e.report, e.report, e.report, e.report, e.node, e.node, e.ask}
		for range rapid.IntRange(4, 30).Draw(t, "steps") {
			if e.over != 0 {
				break
			}
			if what := steps[e.draw("step", len(steps))](); what != "" {
				e.check(what)
			}
		}
		e.m.f = restored(t, snapshotOf(t, e.m.f))
		e.check("a restore")
	})
}
