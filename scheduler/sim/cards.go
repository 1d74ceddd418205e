package sim

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// slot is a GPU and its residents.
type slot struct {
	id        cluster.GPUID
	node      int32
	gpuType   string
	memMiB    int64
	residents []resident // in order of arrival
	alloc     int64      // thousandths allocated
	used, mem int64      // what is true
	idleW     int64
	spanW     int64
}

// resident is a task on a GPU, and its load.
type resident struct {
	id   int32
	load *slowdown.Load
}

// levels is what the fleet does now.
type levels struct {
	alloc, used, mem, frag int64
	reserved               int64 // MiB that shares hold
	memAll                 int64
	powerW                 float64
	nodes                  int64 // that hold a task
}

// cards are the GPUs of a fleet: what is allocated of each, its residents, and the
// sums of both over all.
type cards struct {
	slots  []slot
	slotAt map[cluster.GPUID]int32
	held   []int32 // residents, by node
	cur    levels
	roomy  roomy
	world  slowdown.Interference
	loads  []slowdown.Load // scratch
	speeds []float64
}

// newCards returns the empty GPUs of nodes; watts is what those of a type draw.
func newCards(nodes []*cluster.Node, watts map[string][2]int64, world slowdown.Interference) cards {
	s := cards{slotAt: map[cluster.GPUID]int32{}, world: world}
	s.held = make([]int32, len(nodes))
	s.roomy = roomy{open: make([]int32, len(nodes)), widths: make([]int32, maxWidth+1)}
	for i, n := range nodes {
		s.roomy.open[i] = int32(len(n.GPUs))
		for k := range n.GPUs {
			g := &n.GPUs[k]
			w := watts[g.Type]
			s.cur.powerW += float64(w[0])
			s.cur.memAll += g.MemMiB
			s.slotAt[g.ID] = int32(len(s.slots))
			s.slots = append(s.slots, slot{id: g.ID, node: int32(i), gpuType: g.Type, memMiB: g.MemMiB, idleW: w[0], spanW: w[1] - w[0]})
		}
	}
	return s
}

// lying appends the residents of a GPU to ids.
func (s *cards) lying(ids []int32, c int32) []int32 {
	for _, r := range s.slots[c].residents {
		ids = append(ids, r.id)
	}
	return ids
}

// overfull reports whether one of some GPUs holds more than its memory.
func (s *cards) overfull(some []int32) bool {
	return slices.ContainsFunc(some, func(c int32) bool { return s.slots[c].mem > s.slots[c].memMiB })
}

// give books what a share takes of a GPU.
func (s *cards) give(c int32, sh cluster.Share, sign int64) {
	milli := sh.Milli
	if sh.Exclusive {
		milli = cluster.WholeGPU
	}
	sl := &s.slots[c]
	s.cur.alloc += sign * milli
	s.cur.reserved += sign * sh.MemMiB
	was := sl.alloc
	sl.alloc += sign * milli
	s.roomy.gave(sl, was)
	s.cur.frag += strandedOf(sl.alloc) - strandedOf(was)
}

// strandedOf returns what is free on a GPU in use: no job for a whole GPU can have
// it.
func strandedOf(alloc int64) int64 {
	if alloc == 0 {
		return 0
	}
	return max(0, cluster.WholeGPU-alloc)
}

// lay puts a task on a GPU.
func (s *cards) lay(c int32, who resident) {
	s.slots[c].residents = append(s.slots[c].residents, who)
	s.holds(c, 1)
	s.account(&s.slots[c], who.load, 1)
}

// lift takes it off again.
func (s *cards) lift(c int32, who resident) {
	s.slots[c].residents = slices.DeleteFunc(s.slots[c].residents, func(o resident) bool { return o.id == who.id })
	s.holds(c, -1)
	s.account(&s.slots[c], who.load, -1)
}

// holds counts the residents of the node of a GPU.
func (s *cards) holds(c, sign int32) {
	held := &s.held[s.slots[c].node]
	was := *held
	if *held += sign; was == 0 {
		s.cur.nodes++
	} else if *held == 0 {
		s.cur.nodes--
	}
}

// account updates the sums of the fleet. A GPU does no more than a GPU's worth of
// work and holds no more than its memory, whatever is asked of it.
func (s *cards) account(sl *slot, l *slowdown.Load, sign int64) {
	used, mem := min(sl.used, 1000), min(sl.mem, sl.memMiB)
	sl.used += sign * l.Milli
	sl.mem += sign * l.MemMiB
	du := min(sl.used, 1000) - used
	s.cur.used += du
	s.cur.mem += min(sl.mem, sl.memMiB) - mem
	s.cur.powerW += float64(sl.spanW) * float64(du) / 1000
}

// stays books a berth permanently.
func (s *cards) stays(id int32, b *cluster.Berth) {
	for _, g := range b.GPUs {
		c := s.slotAt[g.GPU]
		s.give(c, g.Share, 1)
		s.slots[c].residents = append(s.slots[c].residents, resident{id, &slowdown.Load{}})
	}
}

// speedOn returns how fast a task runs on a GPU, given its other residents.
func (s *cards) speedOn(c, id int32) float64 {
	sl := &s.slots[c]
	if len(sl.residents) < 2 {
		return 1
	}
	s.loads, s.speeds = s.loads[:0], s.speeds[:0]
	at := 0
	for i, o := range sl.residents {
		if o.id == id {
			at = i
		}
		s.loads = append(s.loads, *o.load)
		s.speeds = append(s.speeds, 1)
	}
	s.world.Speeds(sl.gpuType, s.loads, s.speeds)
	return max(1e-6, s.speeds[at])
}

// roomy counts what nobodyFits needs: the GPUs of each node that take one more job,
// and how many jobs of each width wait.
type roomy struct {
	on     bool
	open   []int32 // by node
	widths []int32 // by number of GPUs, those beyond the last counted there
}

// maxWidth is the largest width counted separately.
const maxWidth = 64

// gave tracks what is allocated of a GPU.
func (r *roomy) gave(s *slot, was int64) {
	switch before, after := was < cluster.WholeGPU, s.alloc < cluster.WholeGPU; {
	case before && !after:
		r.open[s.node]--
	case after && !before:
		r.open[s.node]++
	}
}

// wait adds a job to the waiting ones, or removes it.
func (r *roomy) wait(j *workload.Job, n int32) { r.widths[min(j.GPUs, maxWidth)] += n }

// nobodyFits reports whether no waiting job can start, whatever the policy decides:
// every job needs some of each of its GPUs, and no node has as many that are not
// fully allocated as the narrowest of them asks for. The ledger would refuse every
// start, so the plan of a policy that only starts would be empty.
func (r *roomy) nobodyFits() bool {
	if !r.on {
		return false
	}
	least := int32(0)
	for int(least) <= maxWidth && r.widths[least] == 0 {
		least++
	}
	for _, n := range r.open {
		if n >= least {
			return false
		}
	}
	return true
}
