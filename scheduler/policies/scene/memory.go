package scene

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Memory is what one plan leaves for the next, so that a caller who plans
// repeatedly does not pay for the whole cluster each time: the mirror of the nodes,
// and what was computed for each job. All of it is a function of the snapshot, so a
// plan with memory equals one without.
type Memory struct {
	nodes   []*cluster.Node
	f       *mirror.Fleet
	runs    []mirror.Run
	spare   []mirror.Run // memory for the runs of the next plan
	tasks   []*Task      // by id
	running int          // runs of the snapshot, which precede those of the pass
}

// Keep remembers what a pass leaves.
func (m *Memory) Keep(p *Scene) {
	m.runs, m.spare, m.tasks = p.Fleet.Runs[:m.running], m.runs, p.Tasks
}

// fleetOf returns the mirror as a fresh one would be, reusing the last one if the
// nodes are the same.
func (m *Memory) fleetOf(nodes []*cluster.Node, led *dispatch.Ledger, maxShares int) *mirror.Fleet {
	if m.f == nil || !slices.Equal(m.nodes, nodes) || !m.f.Reset(led) {
		m.f, m.nodes = mirror.New(nodes, led, maxShares), slices.Clone(nodes)
		m.tasks, m.runs = nil, nil
	}
	return m.f
}

// task returns what is known of a job, recomputed if it changed. Jobs are requested
// by rising id; at is where the search for the last one ended.
func (m *Memory) task(p *Scene, j *cluster.Job, at *int) *Task {
	for *at < len(m.tasks) && m.tasks[*at].ID < j.ID {
		*at++
	}
	if *at < len(m.tasks) {
		if t := m.tasks[*at]; t.Job == j && t.revision == j.Revision && t.terms == p.Snap.Terms[j.ID] {
			t.Gone = false
			return t
		}
	}
	return p.NewTask(j)
}

// run returns what was read of a running job, nil if it changed or is new.
func (m *Memory) run(j *cluster.Job, at *int) *mirror.Run {
	for *at < len(m.runs) && m.runs[*at].Job.ID < j.ID {
		*at++
	}
	if *at < len(m.runs) {
		if r := &m.runs[*at]; r.Job == j && r.Revision == j.Revision {
			return r
		}
	}
	return nil
}

func byID(jobs []*cluster.Job) []*cluster.Job {
	less := func(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) }
	if slices.IsSortedFunc(jobs, less) {
		return jobs
	}
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, less)
	return jobs
}

// addRunning enters what an attempt holds, so that it is known what runs where and
// until when. known is what an earlier pass read of it, or nil.
func (p *Scene) addRunning(j *cluster.Job, known *mirror.Run) {
	a := j.Live()
	if a == nil {
		return
	}
	if a.Gang == nil {
		p.addPart(j, a, &a.Berth, known)
		return
	}
	first := len(p.Fleet.Runs)
	for _, b := range a.Held() {
		p.addPart(j, a, b, nil)
	}
	p.Fleet.Number(first)
}

// addPart enters what an attempt holds of one node.
func (p *Scene) addPart(j *cluster.Job, a *cluster.Attempt, b *cluster.Berth, known *mirror.Run) {
	if known == nil {
		r := mirror.Run{Job: j, Berth: b, Est: a.Estimate, Revision: j.Revision}
		p.Fleet.Locate(&r)
		known = &r
	}
	p.Fleet.Runs = append(p.Fleet.Runs, *known)
	r := &p.Fleet.Runs[len(p.Fleet.Runs)-1]
	r.Berth, r.Fresh, r.Began = b, false, int64(max(a.Started, a.Placed))
	r.Began = cmp.Or(r.Began, p.Now)
	r.End, r.Latest = rules.EndsAt(j, a, p.Now, p.Pol)
	p.Fleet.Enter(int32(len(p.Fleet.Runs) - 1))
}
