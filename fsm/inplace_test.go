package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// inPlace has nodes come to some jobs of the world and leave them.
func (w *world) inPlace(s *cluster.Spec) {
	if s.GPUs > 0 && s.Array == nil && w.draw("in place", 6) == 0 {
		s.InPlace, s.OrCPU, s.Node, s.Tasks, s.Nodes = true, false, "", 0, 1
		s.NodeRange, s.Checkpoint = cluster.NodeRange{Min: 1, Max: 3}, cluster.Checkpoint{Signal: "TERM", Grace: time.Minute}
	}
}

// grow gives a job of the world further nodes, mostly one on which it may lie.
func (w wholeWorld) grow() *logv1.Command {
	j, ok := w.changes()
	if !ok {
		return conv.Grow(cluster.AttemptID{Job: 99, No: 1}, nil, "")
	}
	a := j.Last()
	b := a.Berth
	b.Node = rapid.SampledFrom(worldNodes).Draw(w.t, "to")
	b.GPUs = slices.Clone(b.GPUs)
	for i := range b.GPUs {
		b.GPUs[i].GPU = cluster.GPUID(fmt.Sprintf("%s-g%d", b.Node, i))
	}
	return conv.Grow(cluster.AttemptID{Job: j.ID, No: a.No}, []cluster.Berth{b}, "they are idle")
}

// shrink has a job of the world give up a node, mostly one that it has.
func (w wholeWorld) shrink() *logv1.Command {
	j, ok := w.changes()
	if !ok {
		return conv.Shrink(cluster.AttemptID{Job: 99, No: 1}, nil, 0, "")
	}
	a := j.Last()
	return conv.Shrink(cluster.AttemptID{Job: j.ID, No: a.No}, []cluster.NodeID{a.BerthAt(w.draw("give", a.Nodes())).Node}, 1, "job 1 waits for some")
}

// changes picks a job that runs, one to which nodes come if there is any.
func (w wholeWorld) changes() (*cluster.Job, bool) {
	jobs, _ := w.f.Jobs(Query{States: []cluster.JobState{cluster.JobRunning}, Keep: func(j *cluster.Job) bool { return j.Spec.InPlace && j.Last() != nil }})
	if len(jobs) > 0 && w.draw("bogus", 6) > 0 {
		return jobs[w.draw("of", len(jobs))], true
	}
	j, ok := w.pick(cluster.JobRunning)
	return j, ok && j.Last() != nil
}

// spanning is a job of least to most nodes that come and leave, one GPU on each.
func spanning(least, most int) *cluster.Spec {
	s := hooked()
	s.Nodes, s.NodeRange, s.InPlace = least, cluster.NodeRange{Min: least, Max: most}, true
	return s
}

// fleetOf is a machine with so many nodes of two cards.
func fleetOf(t testing.TB, n int) *machine {
	m := lab(t)
	for i := 3; i <= n; i++ {
		m.must(registerCmd(node(cluster.NodeID(fmt.Sprintf("n%d", i)), "boot1", 2)))
	}
	return m
}

func (m *machine) growCmd(id cluster.JobID, gpus ...cluster.GPUID) *logv1.Command {
	var berths []cluster.Berth
	for _, g := range gpus {
		berths = append(berths, m.startOf(id, whole(g)).Berth)
	}
	return conv.Grow(cluster.AttemptID{Job: id, No: m.job(id).Last().No}, berths, "they are idle")
}

func (m *machine) shrinkCmd(id cluster.JobID, nodes ...cluster.NodeID) *logv1.Command {
	return conv.Shrink(cluster.AttemptID{Job: id, No: m.job(id).Last().No}, nodes, 0, "others wait")
}

// partSays is a report of the node of a rank, with the token of its part.
func (m *machine) partSays(id cluster.JobID, rank int, state cluster.JobState) *logv1.Command {
	r := m.partOf(id, rank, state, false)
	r.Token = uint64(m.job(id).Last().TokenOf(rank))
	return reportCmd(r)
}

// spans starts a job on one node, and brings it to run.
func (m *machine) spans(s *cluster.Spec, gpus ...cluster.GPUID) cluster.JobID {
	id := m.gangOn(s, gpus...)
	if len(gpus) == 1 && m.job(id).Last().Gang == nil {
		m.t.Fatalf("nodes come, and it has no parts")
	}
	m.runs(id)
	return id
}

// TestNodesComeAndLeave: the attempt goes on under its number while nodes come and leave,
// holds their cards exactly as long as their parts live, and ends by its first node.
func TestNodesComeAndLeave(t *testing.T) {
	t.Parallel()
	m := fleetOf(t, 3)
	id := m.spans(spanning(1, 3), "n1-g0")
	m.must(m.growCmd(id, "n2-g0", "n3-g0"))
	j := m.wantState(id, cluster.JobRunning)
	if a := j.Last(); a.No != 1 || j.Spec.Nodes != 3 || a.Width() != 3 || len(a.HeldGPUs()) != 3 || a.TokenOf(1) <= a.Token || m.taken("n3-g0") != 1 {
		t.Fatalf("grown it is %+v", a)
	}
	m.must(m.partSays(id, 1, cluster.JobRunning))
	m.must(m.partSays(id, 2, cluster.JobRunning))
	m.refused(cluster.CodeDenied, reportCmd(m.partOf(id, 2, cluster.JobFailed, false))) // with the attempt's own token
	m.must(m.shrinkCmd(id, "n2"))
	if j = m.wantState(id, cluster.JobRunning); j.Spec.Nodes != 2 || m.taken("n2-g0") != 1 {
		t.Fatalf("it has %d nodes, and its card there until its part has ended", j.Spec.Nodes)
	}
	m.refused(cluster.CodeConflict, m.shrinkCmd(id, "n2"))
	m.refused(cluster.CodeConflict, m.growCmd(id, "n2-g1")) // it is there still
	m.must(m.partSays(id, 1, cluster.JobFailed))            // however it ends
	if j = m.wantState(id, cluster.JobRunning); m.taken("n2-g0") != 0 || fmt.Sprint(j.Last().NodeIDs()) != "[n1 n3]" || j.Last().Gang.First != 0 {
		t.Fatalf("%v, decided by %d", j.Last().NodeIDs(), j.Last().Gang.First)
	}
	late := m.partOf(id, 1, cluster.JobFailed, false)
	late.Token = uint64(j.Last().TokenOf(1))
	m.must(m.growCmd(id, "n2-g1")) // it comes back
	m.refused(cluster.CodeDenied, reportCmd(late))
	if j = m.wantState(id, cluster.JobRunning); j.Last().Rank("n2") != 3 || !j.Last().PartLive(3) || len(j.Last().Changes) != 3 {
		t.Fatalf("back it has rank %d, %+v", j.Last().Rank("n2"), j.Last().Changes)
	}
	for rank, state := range []cluster.JobState{cluster.JobCompleted, 0, cluster.JobCompleted, cluster.JobFailed} {
		if state != 0 { // the newest came when the others were done, and found nobody
			m.must(m.partSays(id, rank, state))
		}
	}
	if j = m.wantState(id, cluster.JobCompleted); j.Last().Gang.First != 0 {
		t.Errorf("it ended by part %d", j.Last().Gang.First)
	}
	if f := restored(t, snapshotOf(t, m.f)); !bytes.Equal(f.Hash(), m.f.Hash()) {
		t.Error("restored it is another state")
	}
}

// TestWhoDoesNotChangeInPlace: nothing comes to a job that did not ask for it, that is on
// its way out, or that would be of another size than it may be; nor what is not alike, or
// is somebody else's.
func TestWhoDoesNotChangeInPlace(t *testing.T) {
	t.Parallel()
	m := fleetOf(t, 4)
	plain := spanning(1, 3)
	plain.InPlace = false
	other := m.submit(plain)
	m.startGang(other, "n4-g0")
	m.report(other, cluster.JobRunning)
	m.refused(cluster.CodeConflict, m.growCmd(other, "n3-g0"))
	m.refused(cluster.CodeNotFound, conv.Grow(cluster.AttemptID{Job: 99, No: 1}, nil, ""))
	id := m.spans(spanning(2, 3), "n1-g0", "n2-g0")
	m.refused(cluster.CodeInvalid, m.growCmd(id))
	m.refused(cluster.CodeInvalid, m.growCmd(id, "n3-g0", "n4-g1"))
	m.refused(cluster.CodeConflict, m.growCmd(id, "n2-g1"))
	m.refused(cluster.CodeConflict, m.growCmd(id, "n4-g0")) // it is taken
	m.refused(cluster.CodeInvalid, m.shrinkCmd(id, "n2"))
	m.refused(cluster.CodeConflict, m.shrinkCmd(id, "n1"))
	m.refused(cluster.CodeConflict, m.shrinkCmd(id, "n4"))
	part := m.startOf(id, share1("n3-g0", 4000, 300)).Berth
	m.refused(cluster.CodeConflict, conv.Grow(cluster.AttemptID{Job: id, No: 1}, []cluster.Berth{part}, ""))
	m.must(drainCmd("n3", true))
	m.refused(cluster.CodeConflict, m.growCmd(id, "n3-g0"))
	m.must(drainCmd("n3", false))
	m.enqueue(m.submit(spec(1)), "n3-g0", 1)
	m.refused(cluster.CodeConflict, m.growCmd(id, "n3-g0")) // somebody waits for it
	m.must(m.growCmd(id, "n3-g1"))
	m.room(id)
	m.refused(cluster.CodeConflict, m.shrinkCmd(id, "n3"))
	if got := m.job(id).Last(); len(got.Changes) != 1 || got.Width() != 3 {
		t.Errorf("it changed: %+v", got.Changes)
	}
}

// TestALostNodeIsGivenUp: a job goes on without a node that fails it as long as it has the
// least and its first one; a program that fails is another matter.
func TestALostNodeIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		least, rank int
		end         cluster.JobState
		exit        *logv1.Exit
		goesOn      bool
	}{
		"its node failed it":      {1, 2, cluster.JobNodeFail, nil, true},
		"it could not be started": {1, 1, cluster.JobFailed, nil, true},
		"its program failed":      {1, 1, cluster.JobFailed, exit(1), false},
		"too few are left":        {3, 2, cluster.JobNodeFail, nil, false},
		"the first is lost":       {1, 0, cluster.JobNodeFail, nil, false},
		"it was out of memory":    {1, 1, cluster.JobOutOfMemory, nil, false},
		"two are enough":          {2, 1, cluster.JobNodeFail, nil, true},
	} {
		m := fleetOf(t, 4)
		s := spanning(tc.least, 4)
		id := m.spans(s, []cluster.GPUID{"n1-g0", "n2-g0", "n3-g0"}[:max(1, tc.least)]...)
		if tc.least < 3 {
			m.must(m.growCmd(id, []cluster.GPUID{"n2-g0", "n3-g0"}[tc.least-1:]...))
		}
		r := m.partOf(id, tc.rank, tc.end, false)
		r.Token, r.Exit = uint64(m.job(id).Last().TokenOf(tc.rank)), tc.exit
		m.must(reportCmd(r))
		j := m.job(id)
		if goesOn := j.Last().Gang.First == 0; goesOn != tc.goesOn || goesOn && (j.State != cluster.JobRunning || j.Spec.Nodes != 2) {
			t.Errorf("%s: it is %s on %d nodes, decided by %d", name, j.State, j.Spec.Nodes, j.Last().Gang.First)
		}
	}
	m := fleetOf(t, 3)
	id := m.spans(spanning(1, 3), "n1-g0")
	m.must(m.growCmd(id, "n2-g0"))
	m.must(silentCmd("n2", "boot1"))
	m.wantState(id, cluster.JobUnreachable)
	if r := m.must(fenceCmd("n2")); len(r.Lost)+len(r.Requeued) > 0 {
		t.Errorf("its job is told to be lost %v, or to wait again %v", r.Lost, r.Requeued)
	}
	if j := m.wantState(id, cluster.JobRunning); j.Spec.Nodes != 1 || m.taken("n2-g0") != 0 {
		t.Errorf("after its node was given up it has %d", j.Spec.Nodes)
	}
}

// TestChargeIsOfWhatIsHeld: each node is charged for as long as its part ran, and quotas
// count what is held now.
func TestChargeIsOfWhatIsHeld(t *testing.T) {
	t.Parallel()
	m := fleetOf(t, 3)
	id := m.spans(spanning(1, 3), "n1-g0")
	m.must(setCmd(quota(accounting.Subject{User: true, UID: 1000}, accounting.Limits{GPUMilli: 2000}), 0))
	m.refused(cluster.CodeConflict, m.growCmd(id, "n2-g0", "n3-g0"))
	m.must(m.growCmd(id, "n2-g0"))
	m.must(m.partSays(id, 1, cluster.JobRunning))
	m.refused(cluster.CodeConflict, m.growCmd(id, "n3-g0"))
	if got := m.job(id).Last().HoldsMilli(); got != 2000 {
		t.Errorf("it holds %d", got)
	}
	began := m.job(id).Last().Gang.Parts[1].Started
	m.must(m.shrinkCmd(id, "n2"))
	m.must(m.partSays(id, 1, cluster.JobPreempted))
	if got := m.job(id).Last().HoldsMilli(); got != 1000 {
		t.Errorf("with one left it holds %d", got)
	}
	m.must(m.growCmd(id, "n3-g0"))
	m.must(m.partSays(id, 2, cluster.JobRunning))
	m.must(m.partSays(id, 0, cluster.JobCompleted))
	m.must(m.partSays(id, 2, cluster.JobCompleted))
	a, want := m.wantState(id, cluster.JobCompleted).Last(), time.Duration(0)
	for i := range a.Gang.Parts {
		want += a.Gang.Parts[i].Ended.Sub(a.Gang.Parts[i].Started)
	}
	if got := a.Charge(m.f.Now()).GPU; got < want-3*time.Microsecond || got > want || began == 0 {
		t.Errorf("charged %s, its parts ran %s together", got, want)
	}
}

// TestCostOfAChangeIsCounted: the time in which it came no further than before, once its
// steps show it.
func TestCostOfAChangeIsCounted(t *testing.T) {
	t.Parallel()
	was := cluster.SizeChange{At: t0, From: 1, To: 3, Step: 100, StepTime: 3 * time.Second}
	for name, tc := range map[string]struct {
		now  cluster.Progress
		want time.Duration
	}{
		"soon after":               {cluster.Progress{At: t0.Add(30 * time.Second), Step: 110, StepTime: time.Second}, 0},
		"not farther yet":          {cluster.Progress{At: t0.Add(2 * time.Minute), Step: 100, StepTime: time.Second}, 0},
		"nobody knows its pace":    {cluster.Progress{At: t0.Add(2 * time.Minute), Step: 190}, 0},
		"thirty seconds were lost": {cluster.Progress{At: t0.Add(2 * time.Minute), Step: 190, StepTime: time.Second}, 30 * time.Second},
		"none were":                {cluster.Progress{At: t0.Add(2 * time.Minute), Step: 900, StepTime: time.Second}, time.Microsecond},
	} {
		if got := was.Counted(&tc.now).Took; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	j := &cluster.Job{Attempts: []cluster.Attempt{{Changes: []cluster.SizeChange{{Took: time.Second}, {}}}, {Changes: []cluster.SizeChange{{Took: 4 * time.Second}}}}}
	if got := j.InPlaceCost(); got != 2500*time.Millisecond {
		t.Errorf("in the mean %s", got)
	}
	m := fleetOf(t, 3)
	id := m.spans(spanning(1, 3), "n1-g0")
	tell := func(step int64, took time.Duration) {
		p := &cluster.Progress{At: m.f.Now().Add(time.Hour), Step: step, StepTime: took}
		m.must(&logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: &logv1.NoteProgress{Attempts: []*logv1.AttemptProgress{conv.NoteProgress(cluster.AttemptID{Job: id, No: 1}, p)}}}})
	}
	tell(7, time.Millisecond)
	m.must(m.growCmd(id, "n2-g0"))
	if c := m.job(id).Last().Changes[0]; c.Step != 7 || c.StepTime != time.Millisecond || c.From != 1 || c.To != 2 || c.Why != "they are idle" {
		t.Errorf("noted as %+v", c)
	}
	for range cluster.MaxSizeChanges {
		m.must(m.growCmd(id, "n3-g0"))
		m.must(m.shrinkCmd(id, "n3"))
		m.must(m.partSays(id, m.job(id).Last().Rank("n3"), cluster.JobCancelled))
	}
	if got := m.job(id).Last().Changes; len(got) != cluster.MaxSizeChanges {
		t.Errorf("%d changes are kept", len(got))
	}
}

// TestInPlaceByItsParts: whatever comes, leaves, fails and ends in whatever order, a
// naive list of who is there says the same as the machine, and a restored one is equal.
func TestInPlaceByItsParts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		m.must(initCmd("c1", 100))
		for i := 1; i <= 4; i++ {
			m.must(registerCmd(node(cluster.NodeID(fmt.Sprintf("n%d", i)), "boot1", 2)))
		}
		least := rapid.IntRange(1, 2).Draw(t, "least")
		id := m.spans(spanning(least, 4), []cluster.GPUID{"n1-g0", "n2-g0"}[:least]...)
		type part struct {
			node         cluster.NodeID
			live, leaves bool
		}
		var parts []*part // by rank
		for i := range least {
			parts = append(parts, &part{cluster.NodeID(fmt.Sprintf("n%d", i+1)), true, false})
		}
		width := func() (n int) {
			for _, p := range parts {
				if p.live && !p.leaves {
					n++
				}
			}
			return n
		}
		on := func(id cluster.NodeID) bool {
			return slices.ContainsFunc(parts, func(p *part) bool { return p.live && p.node == id })
		}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			n := rapid.IntRange(1, 4).Draw(t, "node")
			name := cluster.NodeID(fmt.Sprintf("n%d", n))
			rank := m.job(id).Last().Rank(name)
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				cmd := m.growCmd(id, cluster.GPUID(name+"-g0"))
				if on(name) || width() == 4 {
					if r := m.do(cmd)[0]; r.Err == nil {
						t.Fatalf("it grew onto %s with %d", name, width())
					}
					continue
				}
				m.must(cmd)
				parts = append(parts, &part{name, true, false})
			case 2:
				cmd := m.shrinkCmd(id, name)
				if n == 1 || !on(name) || parts[rank].leaves || width() == least {
					if r := m.do(cmd)[0]; r.Err == nil {
						t.Fatalf("it gave up %s with %d of at least %d", name, width(), least)
					}
					continue
				}
				m.must(cmd)
				parts[rank].leaves = true
			case 3:
				if rank > 0 && on(name) && (parts[rank].leaves || width() > least) {
					m.must(m.partSays(id, rank, cluster.JobNodeFail))
					parts[rank].live, parts[rank].leaves = false, true
				}
			case 4:
				if rank > 0 && on(name) && parts[rank].leaves {
					m.must(m.partSays(id, rank, rapid.SampledFrom([]cluster.JobState{cluster.JobPreempted, cluster.JobFailed, cluster.JobCompleted, cluster.JobOutOfMemory}).Draw(t, "as")))
					parts[rank].live = false
				}
			}
			j := m.wantState(id, cluster.JobRunning)
			a := j.Last()
			if a.Width() != width() || j.Spec.Nodes != width() || len(a.Gang.Parts) != len(parts) || a.HoldsMilli() != int64(1000*len(a.HeldGPUs())) {
				t.Fatalf("%d nodes of %d, holding %d; told %d of %d", a.Width(), len(a.Gang.Parts), a.HoldsMilli(), width(), len(parts))
			}
			for i := 1; i <= 4; i++ {
				gpu := cluster.GPUID(fmt.Sprintf("n%d-g0", i))
				if got := m.taken(gpu); (got == 1) != on(cluster.NodeID(fmt.Sprintf("n%d", i))) {
					t.Fatalf("%d shares of %s are taken", got, gpu)
				}
			}
			if f := restored(t, snapshotOf(t, m.f)); !bytes.Equal(f.Hash(), m.f.Hash()) {
				back, _ := f.Job(id)
				t.Fatal(cmp.Diff(j, back))
			}
		}
		for rank, p := range parts {
			if p.live {
				m.must(m.partSays(id, rank, cluster.JobCompleted))
			}
		}
		m.wantState(id, cluster.JobCompleted)
	})
}
