package fsm

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// TestPowerOfCardsIsKept as agents tell it, of the attempt's own cards alone and within
// what there can be; what came earlier and is told again is replaced.
func TestPowerOfCardsIsKept(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 2)))
	m.must(registerCmd(node("n2", "b1", 2)))
	s := spec(1)
	s.Exclusive, s.Power = true, cluster.GPUPower{Cap: "250W", Freq: "1200"}
	id := m.submit(s)
	m.start(id, whole("n1-g0"))
	say := func(state cluster.JobState, cards ...*logv1.CardPower) {
		t.Helper()
		r := m.reportOf(id, state)
		r.Power = cards
		m.must(reportCmd(r))
	}
	has := func(want ...cluster.CardPower) {
		t.Helper()
		if d := cmp.Diff(want, m.job(id).Last().Power); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	set := cluster.CardPower{GPU: "n1-g0", CapW: 250, ClockMHz: 1200, Why: "of which not all"}
	say(cluster.JobRunning, &logv1.CardPower{Gpu: "n2-g0", CapW: 1}, &logv1.CardPower{Gpu: "n1-g0", CapW: 250, ClockMhz: 1200, Why: "of which not all"}, &logv1.CardPower{Gpu: "n1-g0", CapW: 7})
	has(set)
	say(cluster.JobCompleting)
	has(set)
	m.f = restored(t, snapshotOf(t, m.f))
	has(set)
	if !bytes.Equal(restored(t, snapshotOf(t, m.f)).Hash(), m.f.Hash()) {
		t.Error("a restore has another hash")
	}
	say(cluster.JobCompleted, &logv1.CardPower{Gpu: "n1-g0", Why: "no permission"})
	has(cluster.CardPower{GPU: "n1-g0", Why: "no permission"})

	id = m.submit(s)
	m.start(id, whole("n1-g0"))
	for _, bad := range []*logv1.CardPower{{CapW: -1}, {CapW: cluster.MaxPowerCapW + 1}, {ClockMhz: -1}, {ClockMhz: cluster.MaxGPUClockMHz + 1}, {Why: strings.Repeat("x", cluster.MaxPowerWhy+1)}} {
		bad.Gpu = "n1-g0"
		say(cluster.JobRunning, bad)
	}
	has()
	say(cluster.JobCompleted)

	id = m.gangOn(s, "n1-g0", "n2-g1")
	m.ready(id, 0, 1)
	for rank, gpu := range []string{"n1-g0", "n2-g1"} {
		r := m.partOf(id, rank, cluster.JobRunning, false)
		r.Power = []*logv1.CardPower{{Gpu: gpu, CapW: int64(200 + rank)}}
		m.must(reportCmd(r))
	}
	has(cluster.CardPower{GPU: "n1-g0", CapW: 200}, cluster.CardPower{GPU: "n2-g1", CapW: 201})
	r := m.partOf(id, 1, cluster.JobCompleted, false)
	r.Power = []*logv1.CardPower{{Gpu: "n2-g1", CapW: 300}}
	m.must(reportCmd(r))
	m.part(id, 0, cluster.JobCompleted)
	m.wantState(id, cluster.JobCompleted)
	has(cluster.CardPower{GPU: "n1-g0", CapW: 200}, cluster.CardPower{GPU: "n2-g1", CapW: 300})
}

// TestPowerNeedsEveryMember: a job or a partition that asks for a limit waits until all
// coordinators know of limits; a report of what was set never does.
func TestPowerNeedsEveryMember(t *testing.T) {
	t.Parallel()
	capped := spec(1)
	capped.Power.Cap = "70%"
	clocked := spec(1)
	clocked.Power.Freq = "low"
	for _, c := range []struct {
		cmd  *logv1.Command
		want uint32
	}{
		{submitCmd(9, "r", 1000, capped), 15},
		{submitCmd(9, "r", 1000, clocked), 15},
		{partitionCmd(&cluster.Partition{Name: "a", Power: cluster.GPUPower{Cap: "250W"}}, 0), 15},
		{reportCmd(&logv1.ReportAttempt{Power: []*logv1.CardPower{{Gpu: "a", CapW: 9, ClockMhz: 9, Why: "w"}}}), 1},
	} {
		if need := NeedsVersion(c.cmd); need != c.want {
			t.Errorf("%v needs version %d, want %d", c.cmd, need, c.want)
		}
	}
	m := newMachine(t)
	m.must(partitionCmd(&cluster.Partition{Name: "a", Nodes: hosts(t, "n1"), Power: cluster.GPUPower{Cap: "250W", Freq: "high"}}, 0))
	m.f = restored(t, snapshotOf(t, m.f))
	if p, ok := m.f.Partition("a"); !ok || p.Power != (cluster.GPUPower{Cap: "250W", Freq: "high"}) {
		t.Errorf("restored: %+v", p)
	}
	m.refused(cluster.CodeInvalid, partitionCmd(&cluster.Partition{Name: "b", Nodes: hosts(t, "n1"), Power: cluster.GPUPower{Cap: "0W"}}, 0))
}

// TestSlowedRunsTeachNoTime: what cards take that are held to a limit or a clock says
// nothing of others, in no part of a job; what was asked for and could not be set holds
// nobody up.
func TestSlowedRunsTeachNoTime(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 1)))
	s := spec(1)
	s.Exclusive, s.Signature, s.Checkpoint = true, "sig", cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
	run := func(id cluster.JobID, state cluster.JobState, power *logv1.CardPower) {
		t.Helper()
		m.start(id, whole("n1-g0"))
		m.report(id, cluster.JobRunning)
		if state == cluster.JobPreempted {
			m.must(&logv1.Command{Kind: &logv1.Command_PreemptAttempt{PreemptAttempt: &logv1.PreemptAttempt{Job: uint64(id), Attempt: 1, Why: "w"}}})
		}
		r := m.reportOf(id, state)
		r.Usage, r.Exit = &logv1.Usage{GpuMemPeakMib: 5000, Milli: 400, PowerW: 200}, exit(0)
		if power != nil {
			power.Gpu = "n1-g0"
			r.Power = []*logv1.CardPower{power}
		}
		m.must(reportCmd(r))
	}
	for _, c := range []struct {
		power   *logv1.CardPower
		teaches bool
	}{{nil, true}, {&logv1.CardPower{Why: "no permission"}, true}, {&logv1.CardPower{CapW: 200}, false}, {&logv1.CardPower{ClockMhz: 900}, false}} {
		run(m.submit(s), cluster.JobCompleted, c.power)
		if x := m.newest(); (x.Duration > 0) != c.teaches || (x.PowerW > 0) != c.teaches || x.GPUMemPeakMiB != 5000 {
			t.Errorf("with %v it teaches %+v", c.power, x)
		}
	}
	id := m.submit(s)
	run(id, cluster.JobPreempted, &logv1.CardPower{CapW: 200})
	m.wantState(id, cluster.JobPending)
	run(id, cluster.JobCompleted, nil)
	if x := m.newest(); x.Duration != 0 || x.GPUMemPeakMiB != 5000 {
		t.Errorf("after a part that was slowed it teaches %+v", x)
	}
}

// TestWhatIsFoundOfACapIsKept: while it runs on and with its end, as its agent said it last;
// what cannot be is passed over, and what the attempt before found is where the next begins.
func TestWhatIsFoundOfACapIsKept(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 1)))
	s := spec(1)
	s.Exclusive, s.Power, s.Retry = true, cluster.GPUPower{Cap: "auto"}, cluster.Retry{Times: 1}
	id := m.submit(s)
	m.start(id, whole("n1-g0"))
	m.report(id, cluster.JobRunning)
	say := func(state cluster.JobState, search *logv1.CapSearch, cards ...*logv1.CardPower) {
		t.Helper()
		r := m.reportOf(id, state)
		r.Search, r.Power = search, cards
		m.must(reportCmd(r))
	}
	has := func(want *cluster.CapSearch) {
		t.Helper()
		if d := cmp.Diff(want, m.job(id).Last().Search); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	has(nil)
	say(cluster.JobRunning, &logv1.CapSearch{Why: "it says no steps"})
	has(&cluster.CapSearch{Why: "it says no steps"})
	found := &logv1.CapSearch{DefaultW: 400, CapW: 340, StepsBefore: 10, JoulesBefore: 40, StepsAfter: 9.6, JoulesAfter: 35.5}
	want := &cluster.CapSearch{DefaultW: 400, CapW: 340, Before: cluster.StepCost{PerSecond: 10, Joules: 40}, After: cluster.StepCost{PerSecond: 9.6, Joules: 35.5}}
	say(cluster.JobRunning, found, &logv1.CardPower{Gpu: "n1-g0", CapW: 340})
	has(want)
	if got := m.job(id).Last().Power; len(got) != 1 || got[0].CapW != 340 {
		t.Errorf("cards: %v", got)
	}
	for _, bad := range []*logv1.CapSearch{
		{DefaultW: -1}, {DefaultW: 300, CapW: 301}, {CapW: -1}, {DefaultW: cluster.MaxPowerCapW + 1}, {StepsBefore: math.NaN()}, {JoulesBefore: math.Inf(1)}, {StepsAfter: -1},
		{JoulesAfter: 1e16}, {Why: strings.Repeat("x", cluster.MaxPowerWhy+1)},
	} {
		say(cluster.JobRunning, bad)
		has(want)
	}
	m.f = restored(t, snapshotOf(t, m.f))
	has(want)
	if j := m.job(id); j.FoundBefore(j.Last()) != nil {
		t.Error("an attempt begins with what it found itself")
	}
	later := *want
	later.CapW = 320
	last := &logv1.CapSearch{DefaultW: 400, CapW: 320, StepsBefore: 10, JoulesBefore: 40, StepsAfter: 9.6, JoulesAfter: 35.5}
	r := m.reportOf(id, cluster.JobFailed)
	r.Search, r.Exit = last, &logv1.Exit{Code: 1}
	m.must(reportCmd(r))
	has(&later)
	m.start(id, whole("n1-g0"))
	j := m.job(id)
	if got := j.FoundBefore(j.Last()); got == nil || *got != later || j.Last().Search != nil {
		t.Errorf("the next attempt begins with %v", got)
	}
	other := *j.Last()
	other.Estimate.GPUType = "T4"
	if j.FoundBefore(&other) != nil {
		t.Error("on cards of another type it begins with what was found on these")
	}
}
