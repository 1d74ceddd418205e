package policies

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// shape is what a choice depends on. What failed once in a pass fails again, since
// a pass only ever takes.
type shape struct {
	class     int32
	gpus      int32
	nodes     int16
	whole     bool
	share     cluster.Share
	cpu, host int64
	node      cluster.NodeID
	tag       int64
	cells     cellKey
	temper    dispatch.Temper
	owner     scene.Owner
	few       int16
}

// starter starts tasks where the placement rule says, if there is room.
type starter struct {
	*scene.Scene
	guard *guard // nil without tenants
	// plainly means that a placer that finds no GPUs has done nothing else.
	plainly bool
	failed  map[shape]int64
}

// crowdedOut reports cheaply that nothing has room for t.
func (st *starter) crowdedOut(t *scene.Task) bool {
	if !st.plainly {
		return false
	}
	for c := range t.Needs {
		k := &st.Fleet.Classes[c].Most
		if n := &t.Needs[c]; n.OK && k.Free && (k.Empty >= t.GPUs || !n.Share.Exclusive) {
			return false
		}
	}
	return true
}

// start places t now if there is room.
func (st *starter) start(t *scene.Task) bool {
	if t.Spans() {
		return st.startSpan(t)
	}
	if t.GPUs == 0 {
		return st.startPlain(t)
	}
	if st.crowdedOut(t) || !st.worthTrying(t) {
		return false
	}
	cards := st.choose(t)
	if len(cards) == 0 || st.guard != nil && !st.guard.allowsAll(t, cards) {
		st.noteFailed(t)
		return false
	}
	st.place(t, cards)
	return true
}

// choose returns the GPUs that the placement rule gives t: those it would give it if
// there were only nodes with most of what it reads, if that breaks into no more idle
// nodes or GPUs, otherwise those of any node. Rules that do more than choose are asked once.
func (st *starter) choose(t *scene.Task) []int32 {
	cards := st.Rule.Choose(st.Scene, t)
	if len(cards) == 0 || !st.plainly {
		return cards
	}
	tiers := st.Near.Tiers(t.Job)
	if len(tiers) == 0 {
		return cards
	}
	cards = slices.Clone(cards)
	breaks, here := st.Breaks(cards), st.Near.Score(t.Job, st.nodeOf(cards))
	defer func() { st.Among = nil }()
	for _, tier := range tiers {
		if tier.Score <= here {
			break
		}
		st.Among = tier.Nodes
		there := st.Rule.Choose(st.Scene, t)
		if len(there) > 0 && st.Breaks(there) <= breaks && (st.guard == nil || st.guard.allowsAll(t, there)) {
			return slices.Clone(there)
		}
	}
	return cards
}

// nodeOf returns the node that GPUs are of.
func (st *starter) nodeOf(cards []int32) cluster.NodeID {
	return st.Fleet.Hosts[st.Fleet.Groups[st.Fleet.Cards[cards[0]].Group].Host].Node.ID
}

func (st *starter) shapeOf(t *scene.Task, c int) shape {
	s := shape{int32(c), int32(t.GPUs), int16(t.Nodes), t.Whole, t.Needs[c].Share, t.CPU, t.Mem, t.Job.Spec.Node, st.Rule.Tag(t), cellKey{}, st.Temper(t.Job), st.OwnerOn(t.Job, int32(c)), st.few(t)}
	if st.guard != nil {
		s.cells = st.guard.key(t)
	}
	return s
}

// worthTrying reports whether nothing of t's shape has failed yet on some class.
func (st *starter) worthTrying(t *scene.Task) bool {
	for c := range t.Needs {
		if !t.Needs[c].OK {
			continue
		}
		if dur, ok := st.failed[st.shapeOf(t, c)]; !ok || t.Needs[c].Dur < dur {
			return true
		}
	}
	return false
}

func (st *starter) noteFailed(t *scene.Task) {
	for c := range t.Needs {
		if !t.Needs[c].OK {
			continue
		}
		s := st.shapeOf(t, c)
		if dur, ok := st.failed[s]; !ok || t.Needs[c].Dur < dur {
			st.failed[s] = t.Needs[c].Dur
		}
	}
}

func (st *starter) place(t *scene.Task, cards []int32) {
	g := &st.Fleet.Groups[st.Fleet.Cards[cards[0]].Group]
	n := &t.Needs[g.Class]
	k := &st.Fleet.Classes[g.Class]
	start := dispatch.Start{
		Job: t.ID, Attempt: uint32(len(t.Job.Attempts)) + 1, Estimate: n.Est,
		Berth: cluster.Berth{Node: st.Fleet.Hosts[g.Host].Node.ID, CPUMilli: t.CPU, MemMiB: t.Mem, GPUs: make([]cluster.GPUShare, 0, len(cards))},
		Why: fmt.Sprintf("%s: %d of %s, beside %d%s; %s", st.Label, len(cards), k.GPUType, st.Fleet.Cards[cards[0]].Use.Shares,
			st.Near.Words(t.Job, st.nodeOf(cards)), say.TimeWords(t.Job, k.GPUType, n.Dur)),
	}
	for _, ci := range cards {
		start.Berth.GPUs = append(start.Berth.GPUs, cluster.GPUShare{GPU: st.Fleet.Cards[ci].Use.ID, Share: n.Share})
		if start.Overtook == "" {
			start.Overtook = st.overtakes(t, st.Fleet.Cards[ci].Use.ID)
		}
	}
	slices.SortFunc(start.Berth.GPUs, func(a, b cluster.GPUShare) int { return cmp.Compare(a.GPU, b.GPU) })
	st.commit(t, start, n.Dur)
}

// overtakes names the job that t overtakes in the queue of a GPU, which another
// policy may have left there, or "".
func (st *starter) overtakes(t *scene.Task, gpu cluster.GPUID) string {
	for _, w := range st.Snap.Queues[gpu] {
		o := st.TaskOf(w.Job)
		if o == t {
			return ""
		}
		if o == nil || !o.Gone {
			return fmt.Sprintf("%s has one queue in which job %d does not stand first", st.Label, w.Job)
		}
	}
	return ""
}

// commit takes the berths. What the pass believes is what the ledger says, so a
// refusal here is a bug.
func (st *starter) commit(t *scene.Task, start dispatch.Start, dur int64) {
	t.Gone = true
	st.Plan.Starts = append(st.Plan.Starts, start)
	first := len(st.Fleet.Runs)
	for _, berth := range st.Plan.Starts[len(st.Plan.Starts)-1].Berths() {
		r := mirror.Run{Job: t.Job, Berth: berth, Est: start.Estimate, Began: st.Now, End: st.Now + dur, Latest: st.Now + dur, Fresh: true}
		if l := t.Job.Spec.TimeLimit; l > 0 {
			r.Latest = st.Now + l.Microseconds()
		}
		if why := st.Fleet.Start(r); why.Code != "" {
			panic("policies: " + st.Label + " and the ledger disagree on job " + t.ID.String() + ": " + why.String())
		}
	}
	if st.guard != nil {
		st.guard.took(t, start.AllGPUs())
	}
	if len(start.Rest) > 0 {
		st.Fleet.Number(first)
	}
}

// plainer is a placer with its own rule for jobs that need no GPU: it takes the
// host to which it gives the lowest number, of equals the first.
type plainer interface {
	Plain(p *scene.Scene, t *scene.Task, hi int32) int64
}

// startPlain places a job that needs no GPU on the host that plainHost takes.
func (st *starter) startPlain(t *scene.Task) bool {
	if st.plainFailed(t) {
		return false
	}
	hi := st.plainHost(t)
	if hi < 0 {
		st.failed[st.plainShape(t)] = t.Dur
		return false
	}
	e, _ := cluster.EstimateFor(t.Job.Estimates, cluster.CPUType)
	st.commit(t, dispatch.Start{
		Job: t.ID, Attempt: uint32(len(t.Job.Attempts)) + 1, Estimate: e, Why: st.Label + ": a node with room, those without GPUs first" + st.Near.Words(t.Job, st.Fleet.Hosts[hi].Node.ID),
		Berth: cluster.Berth{Node: st.Fleet.Hosts[hi].Node.ID, CPUMilli: t.CPU, MemMiB: t.Mem},
	}, t.Dur)
	return true
}

// few returns on how few switches t still insists, 0 for any.
func (st *starter) few(t *scene.Task) int16 {
	most, _ := t.Job.FewSwitches(cluster.Time(st.Now))
	return int16(most)
}

// plainShape returns what the choice for a job without GPUs depends on.
func (st *starter) plainShape(t *scene.Task) shape {
	return shape{class: -1, cpu: t.CPU, host: t.Mem, node: t.Job.Spec.Node, nodes: int16(t.Nodes), whole: t.Whole, few: st.few(t)}
}

func (st *starter) plainFailed(t *scene.Task) bool {
	dur, ok := st.failed[st.plainShape(t)]
	return ok && t.Dur >= dur
}

// plainHost chooses the host for a job that needs no GPU, -1 if none has room: one
// without GPUs, otherwise by the placer's rule, otherwise the one whose GPUs have
// least left, so that cores are not taken from GPUs that could be used. Of equals it
// is one with most of what t reads.
func (st *starter) plainHost(t *scene.Task) int32 {
	rule, ruled := st.Rule.(plainer)
	end := st.Now + t.Dur
	best, least, most := int32(-1), int64(rules.Forever), 0
	for hi := range st.Fleet.Hosts {
		h := &st.Fleet.Hosts[hi]
		if t.CPU > h.FreeCPU(end) || t.Mem > h.FreeMem(end) || t.Job.Spec.Node != "" && t.Job.Spec.Node != h.Node.ID ||
			st.Spread != nil && !st.Takes(t, int32(hi), -1) {
			continue
		}
		cost := int64(0)
		switch {
		case len(h.Node.GPUs) == 0:
			cost = -rules.Forever
		case ruled:
			cost = rule.Plain(st.Scene, t, int32(hi))
		default:
			cost = st.IdleGPUs(h)
		}
		if cost > least {
			continue
		}
		if score := st.Near.Score(t.Job, h.Node.ID); cost < least || score > most {
			best, least, most = int32(hi), cost, score
		}
	}
	return best
}
