package policies

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// memory is what one plan leaves for the next, so that a caller who plans
// again and again does not pay for the whole cluster each time: the mirror of
// the nodes, what was worked out of each job, and the order of those who wait.
// All of it is a function of the snapshot, so that a plan with memory equals
// one without; TestMemoryChangesNothing holds them against each other.
type memory struct {
	nodes  []*cluster.Node
	f      *fleet
	runs   []run
	spare  []run   // memory for the runs of the next plan
	tasks  []*task // by id
	plans  uint64
	sorted []*task // in a fixed order
	failed map[shape]int64
}

// session is an engine with memory. It is not safe for concurrent use.
type session struct {
	*engine
	mem memory
}

// Remember returns a policy with the same plans, which keeps what it worked
// out between calls. It counts on a job with an unchanged Revision to be
// unchanged, takes in the snapshot's ledger while it plans and gives all back,
// and is for one caller at a time. Under tenants' cells nothing is kept.
func (e *engine) Remember() interface {
	Name() string
	Plan(snap *cluster.Snapshot) cluster.Plan
} {
	if e.opt.Tenants != nil {
		return e
	}
	return &session{engine: e}
}

func (s *session) Plan(snap *cluster.Snapshot) cluster.Plan {
	p := newPassWith(snap, s.engine, snap.Ledger, &s.mem)
	plan := s.engine.run(p)
	for i := range plan.Starts {
		for _, b := range plan.Starts[i].Berths() {
			snap.Ledger.Release(b)
		}
	}
	s.mem.runs, s.mem.spare, s.mem.tasks = p.runs[:p.running], s.mem.runs, p.tasks
	return plan
}

// failures returns an empty table of what failed.
func (m *memory) failures() map[shape]int64 {
	if m.failed == nil {
		m.failed = map[shape]int64{}
	}
	clear(m.failed)
	return m.failed
}

// merge returns the tasks of a pass by a fixed order: those of the last plan
// who still wait, and who is new.
func (m *memory) merge(p *pass) []*task {
	m.plans++
	var fresh []*task
	for _, t := range p.tasks {
		if t.listed == 0 || t.listed != m.plans-1 {
			t.at = p.order.key(p, &t.facts)
			fresh = append(fresh, t)
		}
		t.listed = m.plans
	}
	before := func(x, y *task) int {
		return cmp.Or(cmp.Compare(x.at.a, y.at.a), cmp.Compare(x.at.b, y.at.b), cmp.Compare(x.id, y.id))
	}
	slices.SortFunc(fresh, before)
	out := make([]*task, 0, len(p.tasks))
	for _, t := range m.sorted {
		if t.listed != m.plans {
			continue
		}
		for len(fresh) > 0 && before(fresh[0], t) < 0 {
			out, fresh = append(out, fresh[0]), fresh[1:]
		}
		out = append(out, t)
	}
	m.sorted = append(out, fresh...)
	return m.sorted
}

// fleetOf returns the mirror as a fresh one would be, made of the last one if
// the nodes are still the same.
func (m *memory) fleetOf(nodes []*cluster.Node, led *cluster.Ledger) *fleet {
	if m.f == nil || !slices.Equal(m.nodes, nodes) || !m.f.reset(led) {
		m.f, m.nodes = newFleet(nodes, led), slices.Clone(nodes)
		m.tasks, m.sorted, m.runs = nil, nil, nil
	}
	return m.f
}

// reset brings a mirror back to what the ledger says and nothing kept or run.
// It reports false when nodes or cards came, went or are others now.
func (f *fleet) reset(led *cluster.Ledger) bool {
	for _, n := range f.idle {
		if u, ok := led.Node(n.ID); ok && n.Schedulable() && u.Schedulable {
			return false
		}
	}
	for hi := range f.hosts {
		h := &f.hosts[hi]
		u, ok := led.Node(h.node.ID)
		if !ok || !u.Schedulable || u.CPUMilli != h.use.CPUMilli || u.MemMiB != h.use.MemMiB {
			return false
		}
		h.use.UsedCPU, h.use.UsedMem = u.UsedCPU, u.UsedMem
		h.runs, h.keptCPU, h.keptMem, h.until, h.foreign = h.runs[:0], 0, 0, forever, false
	}
	for i := range f.cards {
		c := &f.cards[i]
		u, ok := led.GPUAt(c.at)
		if !ok || u.ID != c.use.ID || u.Node != c.use.Node || u.Type != c.use.Type || u.SellableMiB != c.use.SellableMiB || u.MaxShares != c.use.MaxShares || u.Shareable != c.use.Shareable || u.Scope != c.use.Scope || u.Closed != c.use.Closed {
			return false
		}
		c.take(u)
		c.on, c.until = c.on[:0], forever
	}
	return true
}

// take copies what is given away of a card.
func (c *card) take(u *cluster.GPUUse) {
	c.use.UsedMiB, c.use.UsedMilli, c.use.Shares, c.use.Exclusive = u.UsedMiB, u.UsedMilli, u.Shares, u.Exclusive
}

// task returns what is known of a job, worked out anew if it changed. Jobs
// are asked for by rising id; at is where the search of the last one ended.
func (m *memory) task(p *pass, j *cluster.Job, at *int) *task {
	for *at < len(m.tasks) && m.tasks[*at].id < j.ID {
		*at++
	}
	if *at < len(m.tasks) {
		if t := m.tasks[*at]; t.job == j && t.revision == j.Revision && t.terms == p.snap.Terms[j.ID] {
			t.gone = false
			return t
		}
	}
	return p.newTask(j)
}

// run returns what was read of a running job, nil if it changed or is new.
func (m *memory) run(j *cluster.Job, at *int) *run {
	for *at < len(m.runs) && m.runs[*at].job.ID < j.ID {
		*at++
	}
	if *at < len(m.runs) {
		if r := &m.runs[*at]; r.job == j && r.revision == j.Revision {
			return r
		}
	}
	return nil
}
