package fsm

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/study"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// says is the command by which an attempt says a value after so many steps.
func says(job cluster.JobID, no uint32, step int64, value float64) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: &logv1.NoteProgress{
		Attempts: []*logv1.AttemptProgress{conv.NoteProgress(cluster.AttemptID{Job: job, No: no}, &cluster.Progress{Step: step, Seen: &study.Seen{Last: value}})},
	}}}
}

// trials are three trials of a study, of which the first two run.
func trials(t *testing.T) (*machine, cluster.JobID) {
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 2)))
	s := spec(1)
	s.Array, _ = cluster.ParseArray("0-2")
	s.Study = &study.Study{Metric: "loss", Rule: study.RuleASHA, First: 10, Eta: 3, Seed: 5, Space: []study.Axis{{Name: "lr", Kind: study.KindLog, Low: 1e-3, High: 1}, {Name: "w", Kind: study.KindChoice, Values: []string{"1", "2"}}}}
	id := m.submit(s)
	for i, gpu := range []cluster.GPUID{"n1-g0", "n1-g1"} {
		m.start(id+cluster.JobID(i), share1(gpu, 8000, 300))
		m.report(id+cluster.JobID(i), cluster.JobRunning)
	}
	return m, id
}

// TestATrialGoesOnFromAnother: what it goes on with is kept over its attempts and snapshots,
// and is no more than its study allows; of other jobs nothing is.
func TestATrialGoesOnFromAnother(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 3)))
	s := spec(1)
	s.Array, _ = cluster.ParseArray("0-2")
	s.Study = &study.Study{Metric: "loss", Rule: study.RulePBT, First: 10, Eta: 3, Seed: 5, Space: []study.Axis{{Name: "lr", Kind: study.KindLog, Low: 1e-3, High: 1}}}
	id := m.submit(s)
	m.start(id, share1("n1-g0", 8000, 300))
	m.report(id, cluster.JobRunning)
	plain := m.running(spec(1), "n1-g1")
	copied := func(job cluster.JobID, c *logv1.TrialCopy) *logv1.Command {
		return &logv1.Command{Kind: &logv1.Command_RequeueJob{RequeueJob: &logv1.RequeueJob{Job: uint64(job), Admin: true, Why: "it was worse", Copy: c}}}
	}
	for _, bad := range []*logv1.Command{
		copied(id, &logv1.TrialCopy{Generation: 1}), copied(id, &logv1.TrialCopy{Values: []string{"1"}}), copied(id, &logv1.TrialCopy{Generation: 1, Values: []string{"1", "2"}}),
		copied(id, &logv1.TrialCopy{Generation: 1000, Values: []string{"1"}}), copied(plain, &logv1.TrialCopy{Generation: 1, Values: []string{"1"}}),
	} {
		if r := m.do(bad)[0]; r.Err == nil || r.Err.Code != cluster.CodeInvalid {
			t.Errorf("%v: %v", bad, r.Err)
		}
	}
	began := s.Study.ParamsAfter(0, m.job(id).Copy())
	for gen := uint32(1); gen <= 2; gen++ {
		c := copied(id, &logv1.TrialCopy{From: 2, Generation: gen, FromGeneration: gen - 1, Values: []string{strings.Repeat("7", int(gen))}})
		if need := NeedsVersion(c); need != 15 {
			t.Errorf("needs version %d", need)
		}
		m.must(c)
		if p := m.job(id).Last().Preempt; p == nil || p.Why != "it was worse" || len(m.job(id).Copies()) != int(gen)-1 {
			t.Errorf("asked to begin again: %+v, %v", p, m.job(id).Copies())
		}
		m.report(id, cluster.JobPreempted)
		m.f = restored(t, snapshotOf(t, m.f))
		j := m.job(id)
		got := s.Study.ParamsAfter(0, j.Copy())
		if j.State != cluster.JobPending || len(j.Copies()) != int(gen) || got[0].Value != strings.Repeat("7", int(gen)) || got[0] == began[0] || j.Copy().From != 2 {
			t.Errorf("generation %d: %v with %v, %+v", gen, j.State, got, j.Copy())
		}
		m.start(id, share1("n1-g0", 8000, 300))
		m.report(id, cluster.JobRunning)
	}
	if r := m.do(copied(id, &logv1.TrialCopy{Generation: 2, Values: []string{"1"}}))[0]; r.Err == nil || r.Err.Code != cluster.CodeConflict {
		t.Errorf("the same generation again: %v", r.Err)
	}
	m.report(id, cluster.JobCompleted)
	if j := m.job(id); len(j.Copies()) != 2 || j.Copy().Values[0] != "77" {
		t.Errorf("after its end: %+v", j.Copies())
	}
}

// TestWhatTrialsSaidIsKept: the marks at rungs and the best of each attempt, over
// snapshots and until long after its end; of jobs of no study nothing is.
func TestWhatTrialsSaidIsKept(t *testing.T) {
	t.Parallel()
	m, id := trials(t)
	for _, c := range []*logv1.Command{says(id, 1, 5, 4), says(id, 1, 11, 3), says(id, 1, 12, 5), says(id, 1, 95, 6)} {
		if need := NeedsVersion(c); need != 15 {
			t.Errorf("needs version %d", need)
		}
		m.must(c)
		m.f = restored(t, snapshotOf(t, m.f))
	}
	m.must(&logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: &logv1.NoteProgress{
		Attempts: []*logv1.AttemptProgress{conv.NoteProgress(cluster.AttemptID{Job: id, No: 1}, &cluster.Progress{Step: 96})}, // of the metric nothing
	}}})
	m.report(id, cluster.JobCompleted)
	if of, _ := m.f.Jobs(Query{After: id - 1, Until: id + 1}); len(of) != 2 || of[0].ID != id || of[1].ID != id+1 {
		t.Errorf("jobs up to the second trial are %v", of)
	}
	got := m.job(id).Seen()
	if want := []study.Mark{{Rung: 0, Value: 3}, {Rung: 2, Value: 6}}; got == nil || got.Best != 3 || got.BestStep != 11 || got.Last != 6 || !slices.Equal(got.Marks, want) {
		t.Errorf("kept: %+v, want the best 3 and marks %v", got, want)
	}
	if p := m.job(id).Last().Progress; p.Step != 96 {
		t.Errorf("it is at %+v", p)
	}
	if again := restored(t, snapshotOf(t, m.f)); !bytes.Equal(again.Hash(), m.f.Hash()) {
		t.Error("a restore has another hash")
	}
	if used := m.job(id).GPUTime(m.f.Now()); used <= 0 {
		t.Errorf("it has used %s of GPUs", used)
	}
	alone := spec(1)
	alone.Study = &study.Study{Metric: "loss"}
	m.must(says(m.running(alone, "n1-g0"), 1, 11, 3))
	if seen := m.job(id + 3).Seen(); seen == nil || seen.Last != 3 || len(seen.Marks) > 0 {
		t.Errorf("of a job with a metric and no study %+v is kept", seen)
	}
	plain := newMachine(t)
	plain.must(registerCmd(node("n1", "b1", 1)))
	other := plain.running(spec(1), "n1-g0")
	plain.must(says(other, 1, 11, 3))
	if seen := plain.job(other).Seen(); seen != nil || plain.job(other).Last().Progress.Step != 11 {
		t.Errorf("of a job of no study %+v is kept", seen)
	}
}

// TestATrialEndsWithItsReason when its study's rule ends it, one that waits at once and one
// that runs when its node says so; a later cancel does not take the reason away.
func TestATrialEndsWithItsReason(t *testing.T) {
	t.Parallel()
	m, id := trials(t)
	end := func(job cluster.JobID, why string) *logv1.Command {
		return &logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: uint64(job), Admin: true, Why: why}}}
	}
	if need := NeedsVersion(end(id, "x")); need != 15 {
		t.Errorf("needs version %d", need)
	}
	m.refused(cluster.CodeInvalid, end(id, strings.Repeat("x", 1025)))
	m.must(end(id, "loss 3 is number 3 of 3"))
	m.must(cancelCmd(id, 1000))
	m.must(end(id+2, "no budget is left"))
	m.f = restored(t, snapshotOf(t, m.f))
	if j := m.wantState(id, cluster.JobRunning); j.Cancel == nil {
		t.Error("the one that runs is not to end")
	}
	m.report(id, cluster.JobCompleted)
	for job, want := range map[cluster.JobID]string{id: "loss 3 is number 3 of 3", id + 2: "no budget is left"} {
		if j := m.wantState(job, cluster.JobCancelled); j.Reason != (cluster.Reason{Code: cluster.ReasonStudy, Detail: want}) {
			t.Errorf("job %d: %s", job, j.Reason)
		}
	}
	m.must(cancelCmd(id+1, 1000))
	m.report(id+1, cluster.JobCancelled)
	if j := m.job(id + 1); j.Reason.Code != cluster.ReasonByUser {
		t.Errorf("cancelled by its user: %s", j.Reason)
	}
}

// running is a job that runs on a card.
func (m *machine) running(s *cluster.Spec, gpu cluster.GPUID) cluster.JobID {
	id := m.submit(s)
	m.start(id, share1(gpu, 8000, 300))
	m.report(id, cluster.JobRunning)
	return id
}
