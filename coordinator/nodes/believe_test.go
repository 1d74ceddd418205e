package nodes

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// heldSet is what an agent has been told of an attempt, in words: it is compared with
// what the state says.
type heldSet map[string]string

// mirror is what an agent believes from all that it was sent: a full set replaces,
// another one adds and takes away.
type mirror struct {
	t        *testing.T
	w        *wire
	has      heldSet
	revision uint64
	sets     int // since the session began
	before   int // in earlier sessions
}

func (m *mirror) read() {
	m.t.Helper()
	for _, r := range m.w.take() {
		d := r.GetDesired()
		if d == nil {
			continue
		}
		if m.sets++; m.sets == 1 && !d.Full {
			m.t.Fatal("a session does not begin with the whole set")
		}
		if d.Term != testTerm || d.Revision < m.revision {
			m.t.Fatalf("a set of term %d, revision %d after %d", d.Term, d.Revision, m.revision)
		}
		m.revision = d.Revision
		if d.Full {
			m.has = heldSet{}
		} else if len(d.Assignments)+len(d.Released)+len(d.Resumes) == 0 {
			m.t.Fatalf("a set that says nothing: %v", d)
		}
		for _, as := range d.Assignments {
			key := fmt.Sprintf("%d.%d", as.Job, as.Attempt)
			mib := int64(0)
			for _, g := range as.Gpus {
				mib += g.MemMib
			}
			words := words(uint64(as.Token), as.Stop, as.Preempt != nil, as.GetRanks().GetGo(), as.GetTimeLimit().AsDuration(), int(as.GetRanks().GetNodeRank()), mib)
			if m.has[key] == words {
				m.t.Fatalf("%s is told again, and nothing of it is news: %s", key, words)
			}
			m.has[key] = words
		}
		for _, ref := range d.Released {
			key := fmt.Sprintf("%d.%d", ref.Job, ref.Attempt)
			if _, ok := m.has[key]; !ok {
				m.t.Fatalf("%s is released, which was not there", key)
			}
			delete(m.has, key)
		}
	}
}

func words(token uint64, stop, room, begin bool, limit time.Duration, rank int, mib int64) string {
	return fmt.Sprintf("token %d stop %t room %t go %t limit %s rank %d %d MiB", token, stop, room, begin, limit, rank, mib)
}

// should is what a node should have by the state, said anew.
func (l *lab) should(node cluster.NodeID) heldSet {
	out := heldSet{}
	jobs, _ := l.f.Jobs(fsm.Query{})
	for _, j := range jobs {
		if len(j.Attempts) == 0 {
			continue
		}
		a := j.Attempts[len(j.Attempts)-1]
		lives := func(s cluster.JobState) bool {
			return s == cluster.JobStarting || s == cluster.JobRunning || s == cluster.JobCompleting || s == cluster.JobUnreachable
		}
		if !lives(a.State) {
			continue
		}
		rank, mib := -1, int64(0)
		all := []cluster.Berth{a.Berth}
		if a.Gang != nil {
			all = append(all, a.Gang.Rest...)
		}
		for r, b := range all {
			if b.Node == node {
				rank = r
				for _, g := range b.GPUs {
					mib += g.Share.MemMiB
				}
			}
		}
		if rank < 0 || a.Gang != nil && !lives(a.Gang.Parts[rank].State) {
			continue
		}
		stop := j.Cancel != nil
		begin := false
		if g := a.Gang; g != nil {
			stop = stop || g.First != 0 || g.Undo.Code != ""
			begin = g.Go
			if j.Spec.Scripted() && rank > 0 && !lives(g.Parts[0].State) {
				stop = true
			}
		}
		out[fmt.Sprintf("%d.%d", j.ID, a.No)] = words(uint64(a.Token), stop, a.Preempt != nil, begin, j.Spec.TimeLimit, rank, mib)
	}
	return out
}

func (m *mirror) check(l *lab, node cluster.NodeID, after string) {
	m.t.Helper()
	m.read()
	if want := l.should(node); !maps.Equal(m.has, want) {
		m.t.Fatalf("after %s the agent of %s believes\n%v\nand the state says\n%v", after, node, m.has, want)
	}
}

// TestAgentsBelieveTheState: whatever happens to jobs, an agent that believes all that
// it is sent has at each moment what the state has for its node, also one that comes
// anew; nothing is sent twice.
func TestAgentsBelieveTheState(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { believe(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func believe(t *testing.T, rnd *rand.Rand) {
	l := newLab(t, Config{Lease: time.Hour}, fsm.Options{})
	nodes := []string{"n1", "n2"}
	ms := map[string]*mirror{}
	for _, id := range nodes {
		ms[id] = &mirror{t: t, w: l.agent(id)}
	}
	for step := range 120 {
		after := fmt.Sprintf("step %d, %s", step, l.move(rnd, ms))
		for _, id := range nodes {
			ms[id].check(l, cluster.NodeID(id), after)
		}
	}
	if n := ms["n1"].sets + ms["n1"].before; n < 20 {
		t.Errorf("n1 was sent %d sets: the test moves too little", n)
	}
}

// move does something by chance, and says what.
func (l *lab) move(rnd *rand.Rand, ms map[string]*mirror) string {
	jobs, _ := l.f.Jobs(fsm.Query{})
	pick := func(ok func(*cluster.Job) bool) *cluster.Job {
		var able []*cluster.Job
		for _, j := range jobs {
			if ok(j) {
				able = append(able, j)
			}
		}
		if len(able) == 0 {
			return nil
		}
		return able[rnd.IntN(len(able))]
	}
	one := func(cmd *logv1.Command) { _, _ = l.prop.One(l.t.Context(), cmd); synctest.Wait() }
	live := func(j *cluster.Job) bool { return j.Live() != nil }
	switch rnd.IntN(9) {
	case 0, 1:
		spec := &cluster.Spec{Name: "j", Command: []string{"x"}, Dir: "/", GPUs: rnd.IntN(2), TimeLimit: time.Hour}
		if rnd.IntN(2) == 0 {
			spec.Nodes = 2
			if rnd.IntN(2) == 0 {
				spec.Script = []byte("#!/bin/sh\n")
			}
		}
		spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
		return fmt.Sprintf("job %d came", l.submit(spec))
	case 2, 3, 4:
		if j := pick(func(j *cluster.Job) bool { return j.State == cluster.JobPending }); j != nil {
			st := dispatch.Start{Job: j.ID, Attempt: uint32(len(j.Attempts)) + 1}
			for rank := range j.Spec.NodeCount() {
				node := []string{"n1", "n2"}[(rank+rnd.IntN(2)*(2-j.Spec.NodeCount()))%2]
				b := cluster.Berth{Node: cluster.NodeID(node), CPUMilli: 100, MemMiB: 100}
				if j.Spec.GPUs > 0 {
					b.GPUs = []cluster.GPUShare{{GPU: cluster.GPUID(fmt.Sprintf("%s-g%d", node, rnd.IntN(3))), Share: cluster.Share{MemMiB: 1000, Milli: 10}}}
				}
				if rank == 0 {
					st.Berth = b
				} else {
					st.Rest = append(st.Rest, b)
				}
			}
			one(&logv1.Command{Kind: &logv1.Command_ApplyPlan{ApplyPlan: conv.PlanToLog(&dispatch.Plan{Starts: []dispatch.Start{st}})}})
			return fmt.Sprintf("job %d started", j.ID)
		}
	case 5, 6:
		if j := pick(live); j != nil {
			a := j.Live()
			ids := a.NodeIDs()
			node := ids[rnd.IntN(len(ids))]
			r := &nodev1.Report{Job: uint64(j.ID), Attempt: a.No, Token: uint64(a.Token)}
			switch rnd.IntN(4) {
			case 0:
				r.State, r.Ready = nodev1.AttemptState_ATTEMPT_STATE_STARTING, a.Gang != nil
			case 1:
				r.State = nodev1.AttemptState_ATTEMPT_STATE_RUNNING
			case 2:
				r.State = nodev1.AttemptState_ATTEMPT_STATE_COMPLETED
			case 3:
				r.State, r.Exit = nodev1.AttemptState_ATTEMPT_STATE_FAILED, &nodev1.Exit{Code: 1}
			}
			ms[string(node)].w.report(r)
			return fmt.Sprintf("%s said that job %d is %s", node, j.ID, r.State)
		}
	case 7:
		if j := pick(live); j != nil {
			switch rnd.IntN(3) {
			case 0:
				one(&logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: uint64(j.ID), Admin: true}}})
				return fmt.Sprintf("job %d was cancelled", j.ID)
			case 1:
				one(&logv1.Command{Kind: &logv1.Command_PreemptAttempt{PreemptAttempt: &logv1.PreemptAttempt{Job: uint64(j.ID), Attempt: j.Live().No, Why: "room"}}})
				return fmt.Sprintf("job %d makes room", j.ID)
			}
			spec := *j.Spec
			spec.TimeLimit = time.Duration(1+rnd.IntN(60)) * time.Minute
			one(&logv1.Command{Kind: &logv1.Command_UpdateJob{UpdateJob: &logv1.UpdateJob{Job: uint64(j.ID), Spec: conv.SpecToLog(&spec), Base: j.Revision}}})
			return fmt.Sprintf("job %d has another time limit", j.ID)
		}
	case 8:
		node := []string{"n1", "n2"}[rnd.IntN(2)]
		ms[node].w.cut()
		if _, over := ms[node].w.ended(); !over {
			l.t.Fatal("a session goes on without its stream")
		}
		ms[node] = &mirror{t: l.t, w: l.agent(node), before: ms[node].before + ms[node].sets}
		return node + " came anew"
	}
	return "nothing"
}
