package scheduler

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fair"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// scene is what all parts of a pass read: the fleet after the starts so far, the
// waiting and the running jobs. The fleet, the items, the company on GPUs, the
// quotas and the plan change during the pass.
type scene struct {
	mem     *memory
	pol     Policy
	now     int64
	nodes   []*cluster.Node
	f       *fleet.Fleet
	items   []item
	byID    []int32 // item+1 by job id less firstID
	firstID cluster.JobID
	running []*cluster.Job
	holds   []holding             // by these; see holdings
	more    map[cluster.JobID]int // see Snapshot.More
	near    *dispatch.Near
	links   *rules.Links // nil until a job on several nodes has room; see linked
	crowd   *crowd
	// reservations are those of the snapshot.
	reservations dispatch.Reservations
	realms       *fleet.Realms // nil if every job may run everywhere
	standing     *accounting.Standing
	niced        bool                // some job has a nice value
	spanning     bool                // some job needs several nodes, or all of one
	plenty       bool                // there are empty GPUs for every waiting job; see rankOf
	unseen       bool                // some queued job is not in the snapshot
	limits       *accounting.Limiter // the pass's own, nil without quotas
	market       *fair.Market        // nil if accounts trade nothing
	plan         dispatch.Plan
	read         int64 // see readAhead
	started      int   // when that was last called
}

// markUnseen counts the queued jobs that the snapshot does not hold, and closes the
// nodes where one of them heads a queue and is old. It looks at no queue beyond its
// head.
func (s *scene) markUnseen() {
	for i := range s.f.Cards {
		s.f.Cards[i].Unseen = len(s.f.Cards[i].Queue)
	}
	for i := range s.items {
		if q := s.items[i].queue; q >= 0 {
			s.f.Cards[q].Unseen--
		}
	}
	for i := range s.f.Cards {
		c := &s.f.Cards[i]
		if c.Unseen <= 0 {
			c.Unseen = 0
			continue
		}
		s.unseen = true
		if h := &s.f.Hosts[c.Host]; !h.ForeignQueue && RankIsOld(c.Queue[0].Rank) && s.find(c.Queue[0].Job) == nil {
			h.ForeignQueue = true
			s.f.Refresh(c.Host)
		}
	}
}

// gather makes items of the jobs that may be placed, sorted by id.
func (s *scene) gather(waiting []*cluster.Job) {
	if !slices.IsSortedFunc(waiting, byJob) {
		waiting = slices.Clone(waiting)
		slices.SortFunc(waiting, byJob)
	}
	classes := len(s.f.Classes)
	s.mem.needs = sized(s.mem.needs, len(waiting)*classes)
	s.mem.items = sized(s.mem.items, len(waiting))
	needs := s.mem.needs
	s.items = s.mem.items[:0]
	for i, j := range waiting {
		if s.crowd != nil && i%aheadOf == 0 {
			s.crowd.readNames(waiting[i:min(len(waiting), i+aheadOf)])
		}
		if !j.State.Waiting() || j.Cancel != nil {
			continue
		}
		s.items = s.items[:len(s.items)+1]
		it := &s.items[len(s.items)-1]
		*it = item{needs: needs[:classes:classes]}
		needs = needs[classes:]
		s.fill(it, j)
		s.niced = s.niced || j.Spec.Nice != 0
		s.spanning = s.spanning || j.Spec.NodeCount() > 1 || j.Spec.WholeNodes()
		if j.Queue != "" {
			if c, ok := s.f.CardAt[j.Queue]; ok {
				it.queue = c
			}
		}
	}
	s.indexItems()
}

func (s *scene) fillNeeds(it *item) {
	var none cluster.Estimate
	at, es, tight := 0, it.job.Estimates, false // both are sorted by type
	for c := range s.f.Classes {
		k, e := &s.f.Classes[c], &none
		for at < len(es) && es[at].GPUType < k.GPUType {
			at++
		}
		if at < len(es) && es[at].GPUType == k.GPUType {
			e = &es[at]
		}
		it.needs[c] = rules.NeedOn(it.job, k.Rep, e, &s.pol)
		tight = tight || it.needs[c].Tight
	}
	if it.goesOn {
		for c := range it.needs {
			e, _ := cluster.EstimateFor(it.job.Estimates, s.f.Classes[c].GPUType)
			it.needs[c].Dur = rules.LeftOf(it.job, &e, s.now, &s.pol)
		}
	}
	if it.job.MinGPUMemMiB > 0 {
		s.spareTooSmall(it, rules.VetoObserved, func(c int) bool { return s.f.Classes[c].Sellable >= it.job.MinGPUMemMiB })
	}
	if tight {
		s.spareTooSmall(it, rules.VetoTight, func(c int) bool { return !it.needs[c].Tight })
	}
}

// indexItems makes looking up items by job cheap: ids of waiting jobs are close
// together, so a table over their range suffices.
func (s *scene) indexItems() {
	n := len(s.items)
	if n == 0 {
		return
	}
	s.firstID = s.items[0].id
	span := uint64(s.items[n-1].id-s.firstID) + 1
	if span > 8*uint64(n)+1024 {
		return
	}
	s.mem.byID = zeroed(s.mem.byID, int(span))
	s.byID = s.mem.byID
	for i := range s.items {
		s.byID[s.items[i].id-s.firstID] = int32(i) + 1
	}
}

// find returns the item of a job, nil if the pass does not know it.
func (s *scene) find(id cluster.JobID) *item {
	if s.byID != nil {
		if id < s.firstID || uint64(id-s.firstID) >= uint64(len(s.byID)) || s.byID[id-s.firstID] == 0 {
			return nil
		}
		return &s.items[s.byID[id-s.firstID]-1]
	}
	i, ok := slices.BinarySearchFunc(s.items, id, func(it item, id cluster.JobID) int { return cmp.Compare(it.id, id) })
	if !ok {
		return nil
	}
	return &s.items[i]
}

// spareTooSmall excludes the classes on which the job ran out of memory, or may by
// the upper quantile of a confident prediction, if some class is large enough and
// could ever run it: SchedTune's veto (section IV-C) on the side of caution. A job
// that dies alone on a GPU took it for nothing.
func (s *scene) spareTooSmall(it *item, why rules.Veto, large func(c int) bool) {
	for c := range it.needs {
		if it.needs[c].Way == rules.WayNone || !large(c) || !s.everOn(it, c) {
			continue
		}
		for o := range it.needs {
			if !large(o) && it.needs[o].Way != rules.WayNone {
				it.needs[o].Way, it.needs[o].Why = rules.WayNone, why
			}
		}
		return
	}
}

// everOn reports whether some node with GPUs of class c could ever run a job.
func (s *scene) everOn(it *item, c int) bool {
	return slices.ContainsFunc(s.f.Classes[c].Groups, func(g fleet.Group) bool {
		h := &s.f.Hosts[g.Host]
		return h.Use.CPUMilli >= it.cpu && h.Use.MemMiB >= it.mem && int(g.Hi-g.Lo) >= it.gpus && (it.node == "" || it.node == h.Node.ID)
	})
}

// holding is a GPU that a running job has, or shares.
type holding struct {
	card     int32
	dominant int64 // what it takes of it, in thousandths; see Need.Dominant
	left     int64 // microseconds until it is expected to end
	dur      int64 // how long it was expected to run
}

// holdings returns what running jobs have of the fleet. It reads the jobs once: they
// are spread over memory.
func (s *scene) holdings() []holding {
	if s.holds != nil {
		return s.holds
	}
	s.holds = s.mem.holds[:0]
	for k, j := range s.running {
		if k%aheadOf == 0 {
			s.readRunning(s.running[k:min(len(s.running), k+aheadOf)])
		}
		a := j.Live()
		if a == nil {
			continue
		}
		end, _ := rules.EndsAt(j, a, s.now, &s.pol)
		dur := rules.DurationOf(j, &a.Estimate, &s.pol)
		for _, gs := range a.HeldGPUs() {
			i, ok := s.f.CardAt[gs.GPU]
			if !ok {
				continue
			}
			n := rules.Need{Mem: gs.Share.MemMiB, Milli: gs.Share.Milli, Way: rules.WayShare}
			if gs.Share.Exclusive {
				n.Way = rules.WayWhole
			}
			s.holds = append(s.holds, holding{i, n.Dominant(s.f.Cards[i].Use.SellableMiB), end - s.now, dur})
		}
	}
	s.mem.holds = s.holds
	return s.holds
}

// readRunning reads what holdings needs of jobs; see readAhead.
func (s *scene) readRunning(jobs []*cluster.Job) {
	for _, j := range jobs {
		if a := j.Live(); a != nil && len(a.Berth.GPUs) > 0 && a.Berth.GPUs[0].GPU != "" {
			s.read += int64(j.Spec.TimeLimit) + int64(a.Estimate.Duration) + int64(a.Berth.GPUs[0].GPU[0])
		}
	}
}

// mostAsked returns the most cores and host memory that any waiting job asks of a
// node.
func (s *scene) mostAsked() (cpu, mem int64) {
	for i := range s.items {
		cpu, mem = max(cpu, s.items[i].cpu), max(mem, s.items[i].mem)
	}
	return cpu, mem
}

// item is one waiting job in a pass.
type item struct {
	needs    []rules.Need // by class
	cpu, mem int64
	node     cluster.NodeID // copies of what the job asks for, and more of it below:
	gpus     int            // the passes' inner loops should not follow its pointers
	nodes    int            // how many at once, 0 for one
	eligible int64
	cores    *rules.CoresNeed // instead of its GPUs; nil for most
	queue    int32            // the GPU in whose queue it is, -1 for none
	fast     int32            // the class on which it is predicted to run shortest, -1 for none
	kind     int32            // what is known of its behaviour; 0 is nothing
	tier     int8
	class    int8 // its priority; greater goes first
	aims     bool // it has an objective
	due      bool // it has a deadline
	goesOn   bool // see Policy.GoesOn
	gone     bool // started in this pass
	old      bool // has waited so long that its length no longer counts
	kept     bool // GPUs are reserved for it; old jobs ask for that at once
	moved    bool // in this pass, once per plan
	whole    bool // it takes all of each of its nodes
	behind   bool // asked where it may run once reservations are over
	id       cluster.JobID
	job      *cluster.Job
	bounds   fleet.Bounds // where it may run; see realms
}

// aheadOf is how many items are read at once ahead of their turn.
const aheadOf = 32

// readAhead brings the items of the next ranks into the cache, at every aheadOf-th
// of them. The order of a pass is not that of memory: read one by one, the pass would
// wait for each, and here it waits for all together. The sum keeps the compiler from
// leaving out the reads.
func (s *scene) readAhead(order []rank, k int) {
	if k%aheadOf != 0 {
		return
	}
	starting := len(s.plan.Starts) - s.started // of the last ones
	s.started = len(s.plan.Starts)
	for _, r := range order[k:min(len(order), k+aheadOf)] {
		it := &s.items[r.item] // four lines of the cache, and two or three of needs
		s.read += it.cpu + it.eligible + int64(len(it.node)) + int64(it.tier)
		if n := len(it.needs); n > 0 {
			s.read += it.needs[0].Mem + it.needs[n/2].Mem + it.needs[n-1].Dur
		}
		s.crowd.readAhead(it)
		if starting <= aheadOf/4 {
			continue
		}
		if es := it.job.Estimates; len(es) > 0 { // for the start, and its words
			s.read += int64(it.job.Spec.TimeLimit) + int64(es[0].Duration) + int64(es[len(es)/2].Duration) + int64(es[len(es)-1].Duration)
		}
	}
}

// fill makes it the item of a job in a pass.
func (s *scene) fill(it *item, j *cluster.Job) {
	it.job, it.queue, it.gpus, it.node, it.aims = j, -1, j.Spec.GPUs, j.Spec.Node, j.Spec.Objective != ""
	it.id, it.eligible, it.due, it.goesOn = j.ID, int64(j.Eligible), j.Spec.Deadline > 0, s.pol.GoesOn(j)
	if n := j.Spec.NodeCount(); n > 1 {
		it.nodes = n
	}
	if it.whole = j.Spec.WholeNodes(); it.whole {
		it.nodes = j.Spec.NodeCount()
	}
	it.cpu, it.mem = rules.HostOf(j, &s.pol)
	it.class = int8(s.standing.Priority(j))
	if j.Spec.GPUs > 0 {
		s.fillNeeds(it)
		if s.crowd != nil {
			it.kind = s.crowd.kindOf(j)
		}
		if s.realms != nil {
			s.bind(it)
		}
		if j.Spec.OrCPU {
			s.doWithout(it)
		}
		return
	}
	clear(it.needs)
	if s.realms != nil {
		it.bounds = s.realms.BoundsOf(j, s.now, s.reservations)
	}
}

// grown returns a list with room for one more. It at least doubles: what append makes
// of thousands is copied five times over.
func grown[T any](s []T) []T {
	if len(s) == cap(s) {
		return slices.Grow(s, max(16, len(s)))
	}
	return s
}

func byJob(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) }

// doWithout turns items of jobs that no GPU could ever run, even with all nodes
// back and empty, into ones without GPUs if cores will do.
func (s *scene) doWithout(it *item) {
	c := rules.CoresOf(it.job, &s.pol)
	if c == nil {
		return
	}
	it.cores = c
	for k := range it.needs {
		if it.needs[k].Way != rules.WayNone && s.everOn(it, k) {
			return
		}
	}
	if rules.NeverOn(s.nodes, it.job, s.pol) == "" || c.Never != "" {
		return
	}
	it.gpus, it.cpu, it.mem, it.kind = 0, c.CPU, c.Mem, 0
	for k := range it.needs {
		it.needs[k] = rules.Need{Dur: 1}
	}
}

// bind gives an item its bounds, and excludes the classes on which it may not run.
func (s *scene) bind(it *item) {
	it.bounds = s.realms.BoundsOf(it.job, s.now, s.reservations)
	for c := range it.needs {
		if it.needs[c].Way == rules.WayNone {
			continue
		}
		if v := s.realms.Bars(&it.bounds, s.f.Classes[c].Realm); v != rules.VetoNone {
			if v == rules.VetoReserved && it.spans() {
				it.needs[c].Behind = it.needs[c].Way
			}
			it.needs[c].Way, it.needs[c].Why = rules.WayNone, v
		}
	}
	if it.bounds.Single && it.gpus > 0 && !it.spans() && it.node == "" {
		s.pin(it)
	}
}

// pin assigns a job whose set of nodes is no realm to one of them: the one with the
// most empty GPUs on which it may run.
func (s *scene) pin(it *item) {
	best, most := int32(-1), int64(-1)
	for i := range s.f.Hosts {
		h := &s.f.Hosts[i]
		if !h.Use.Schedulable || !it.job.Spec.Allows(h.Node) {
			continue
		}
		room := int64(-1)
		for c := h.Lo; c < h.Hi; c++ {
			if k := &s.f.Cards[c]; k.Class >= 0 && it.needs[k.Class].Way != rules.WayNone {
				room = max(room, 0)
				if k.Use.Shares == 0 {
					room++
				}
			}
		}
		if room > most {
			best, most = int32(i), room
		}
	}
	if best >= 0 {
		it.node = s.f.Hosts[best].Node.ID
		return
	}
	for c := range it.needs {
		if it.needs[c].Way != rules.WayNone {
			it.needs[c].Way, it.needs[c].Why = rules.WayNone, rules.VetoWhere
		}
	}
}

// refused reports whether a job may not run on a node's cores.
func (s *scene) refused(it *item, host int32) bool {
	if s.realms == nil {
		return false
	}
	h := &s.f.Hosts[host]
	return s.realms.Bars(&it.bounds, h.Realm) != rules.VetoNone || it.bounds.Asked < 0 && !it.job.Spec.Allows(h.Node)
}

// fastest returns the class on which a job is predicted to run shortest, -1 if it
// can run on none.
func (s *scene) fastest(it *item) int32 {
	best := int32(-1)
	for c := range it.needs {
		if it.needs[c].Way != rules.WayNone && (best < 0 || it.needs[c].Dur < it.needs[best].Dur) {
			best = int32(c)
		}
	}
	return best
}

// span returns the places of class k on which the job may run.
func (s *scene) span(it *item, k *fleet.Class) (lo, hi int, ok bool) {
	if it.node == "" {
		return 0, len(k.Cards), true
	}
	g := s.f.GroupOn(it.node, k)
	if g == nil {
		return 0, 0, false
	}
	return int(g.Lo), int(g.Hi), true
}

// linked returns the links that running jobs use, and those that this pass started.
func (s *scene) linked() *rules.Links {
	if s.links != nil {
		return s.links
	}
	s.links = &rules.Links{}
	for _, j := range s.running {
		a := j.Live()
		if a == nil || a.Gang == nil || a.Width() < 2 || j.Spec.GPUs == 0 {
			continue
		}
		var parts []rules.Part
		for _, b := range a.Held() {
			if i, there := s.f.HostAt[b.Node]; there {
				parts = append(parts, rules.NewPart(j, s.f.Hosts[i].Node, rules.Part{Host: i}))
			}
		}
		s.links.Take(parts)
	}
	return s.links
}
