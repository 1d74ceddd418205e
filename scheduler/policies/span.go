package policies

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies/place"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// A job over several nodes takes the same of each, of GPUs that are alike, on all
// at once or on none; one that wants nodes exclusively takes all of them. Its nodes
// are those that the placement would give to as many single-node jobs, one after
// the other and none twice. So every rule handles gangs in its own way without
// knowing of them.

// startSpan starts a task over several nodes if as many have room now.
func (st *starter) startSpan(t *scene.Task) bool {
	if t.GPUs == 0 && st.plainFailed(t) || t.GPUs > 0 && (st.crowdedOut(t) || !st.worthTrying(t)) {
		return false
	}
	parts := st.chooseSpan(t)
	if st.guard != nil && slices.ContainsFunc(parts, func(x rules.Part) bool { return !st.guard.allowsAll(t, x.Cards) }) {
		parts = nil
	}
	switch {
	case parts != nil:
		st.placeSpan(t, parts)
		return true
	case t.GPUs > 0:
		st.noteFailed(t)
	default:
		st.failed[st.plainShape(t)] = t.Dur
	}
	return false
}

// chooseSpan returns the parts that t should start on now, none if it has to wait.
// Nodes that delayed an earlier attempt are taken only if nothing else will do.
func (st *starter) chooseSpan(t *scene.Task) []rules.Part {
	parts := st.chooseWithin(t, &scene.Spread{})
	most, _ := t.Job.FewSwitches(cluster.Time(st.Now))
	few := func(parts []rules.Part) bool { return !rules.Scattered(st.said(t, parts), most) }
	if parts == nil || t.Job.Spec.Where.Named() && few(parts) {
		return parts
	}
	// Nearer ones, if there are any: a job that asks for no number does not wait
	// for them.
	for _, within := range st.nearer(t, parts) {
		if near := st.chooseWithin(t, &scene.Spread{Within: within}); near != nil && few(near) {
			return near
		}
	}
	if few(parts) {
		return parts
	}
	for _, on := range st.sets(t, most) {
		if near := st.chooseWithin(t, &scene.Spread{On: on}); near != nil {
			return near
		}
	}
	return nil
}

// said returns the parts with what the task and their nodes say of them.
func (st *starter) said(t *scene.Task, parts []rules.Part) []rules.Part {
	out := make([]rules.Part, len(parts))
	for i, x := range parts {
		out[i] = rules.NewPart(t.Job, st.Fleet.Hosts[x.Host].Node, x)
	}
	return out
}

// Limits on how many switches, and how many sets of them, are tried for a task.
const (
	mostNearer = 8
	mostSets   = 16
)

// sets lists sets of so many switches below which enough nodes have room for t, those with
// the fewest first.
func (st *starter) sets(t *scene.Task, most int) [][]string {
	count := map[string]int{}
	for hi := range st.Fleet.Hosts {
		h := &st.Fleet.Hosts[hi]
		if t.GPUs == 0 && t.CPU <= h.FreeCPU(st.Now+t.Dur) && t.Mem <= h.FreeMem(st.Now+t.Dur) || slices.ContainsFunc(h.Groups, func(gi int32) bool { return st.hasRoom(t, gi) }) {
			count[h.Node.SwitchPath()]++
		}
	}
	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[a], count[b]), cmp.Compare(a, b))
	})
	most = min(most, len(names))
	var out [][]string
	for i := 0; i+most <= len(names) && len(out) < mostSets; i++ {
		sum := 0
		for _, name := range names[i : i+most] {
			sum += count[name]
		}
		if sum >= t.Nodes {
			out = append(out, names[i:i+most])
		}
	}
	return out
}

// nearer lists switches below which t may find all of its nodes, and that are lower
// than the one below which the parts are. It is empty if one of these delayed t.
func (st *starter) nearer(t *scene.Task, parts []rules.Part) []string {
	var have, could []string
	for i := range parts {
		n := st.Fleet.Hosts[parts[i].Host].Node
		if t.Job.HeldUpBy(n.ID) {
			return nil
		}
		have = append(have, n.SwitchPath())
	}
	now := rules.Below(have, len(have))
	if len(now) == 0 {
		return nil // they are on one switch, or their places are unknown
	}
	for hi := range st.Fleet.Hosts {
		h := &st.Fleet.Hosts[hi]
		if path := h.Node.SwitchPath(); path != "" && t.CPU <= h.FreeCPU(st.Now+t.Dur) && t.Mem <= h.FreeMem(st.Now+t.Dur) {
			could = append(could, path)
		}
	}
	all := rules.Below(could, len(parts))
	if at := slices.IndexFunc(all, func(p string) bool { return p == "" || rules.IsBelow(now[0], p) }); at >= 0 {
		all = all[:at]
	}
	return all[:min(len(all), mostNearer)]
}

// hasRoom reports whether a group has room for t's part on one node.
func (st *starter) hasRoom(t *scene.Task, gi int32) bool {
	defer st.Fleet.Remember(gi)()
	return t.GPUs > 0 && st.CouldHold(t, gi) && st.RoomOn(t, gi)
}

// chooseWithin is chooseSpan restricted by s to some switches.
func (st *starter) chooseWithin(t *scene.Task, s *scene.Spread) []rules.Part {
	s.Failed, s.Late = make([]bool, len(st.Fleet.Classes)), t.Job.Undone() == 0
	st.Spread = s
	defer func() { st.Spread = nil }()
	for {
		switch {
		case st.gather(t, s):
			return s.Parts
		case s.Family >= 0:
			s.Failed[s.Family] = true
		case !s.Late && s.Within == "":
			clear(s.Failed)
			s.Late = true
		default:
			return nil
		}
	}
}

// gather collects the parts of t on nodes that the placer chooses, of GPUs like
// those that it chooses first; false if they are too few.
func (st *starter) gather(t *scene.Task, s *scene.Spread) bool {
	s.Family, s.Named, s.Parts = -1, 0, nil
	if w := t.Job.Spec.Where; w.Named() {
		s.Named = w.Nodes.Len()
	}
	for len(s.Parts) < t.Nodes {
		x := rules.Part{Host: -1}
		if t.GPUs == 0 {
			x.Host = st.plainHost(t)
		} else if cards := st.choose(t); len(cards) > 0 {
			gi := st.Fleet.Cards[cards[0]].Group
			x.Host, s.Family = st.Fleet.Groups[gi].Host, st.Fleet.Classes[st.Fleet.Groups[gi].Class].Family
			x.Cards = st.partOf(t, gi, cards)
		}
		if x.Host < 0 {
			return false
		}
		s.Parts = append(s.Parts, x)
		s.Named = max(0, s.Named-1)
	}
	return true
}

// partOf returns what t takes of a group of which the placer would give it cards:
// all of it if it wants the node exclusively. Empty GPUs are alike to placers
// without a rule for GPUs of one group, but not to a gang: it gets those that are
// nearest to each other.
func (st *starter) partOf(t *scene.Task, gi int32, cards []int32) []int32 {
	if t.Whole {
		return slices.Clone(st.Fleet.Groups[gi].Cards)
	}
	if _, own := st.Rule.(scene.Grouper); own || !st.plainly || t.GPUs < 2 || !t.Needs[st.Fleet.Groups[gi].Class].Share.Exclusive {
		return slices.Clone(cards)
	}
	return place.Nearest(st.Scene, t, gi)
}

// spanner is a placer that counts jobs that start on several nodes.
type spanner interface {
	Spanned(p *scene.Scene, t *scene.Task, parts []rules.Part)
}

// placeSpan starts t on the parts. Nodes are ranked by id.
func (st *starter) placeSpan(t *scene.Task, parts []rules.Part) {
	slices.SortFunc(parts, func(a, b rules.Part) int { return int(a.Host - b.Host) })
	start := dispatch.Start{Job: t.ID, Attempt: uint32(len(t.Job.Attempts)) + 1}
	dur, of, typ := t.Dur, "", cluster.CPUType
	if t.GPUs == 0 {
		start.Estimate, _ = cluster.EstimateFor(t.Job.Estimates, cluster.CPUType)
	} else {
		class := st.Fleet.Groups[st.Fleet.Cards[parts[0].Cards[0]].Group].Class
		n := &t.Needs[class]
		start.Estimate, dur, typ = n.Est, n.Dur, st.Fleet.Classes[class].GPUType
		of = fmt.Sprintf(" with %d of %s each", len(parts[0].Cards), typ)
	}
	ids := make([]cluster.NodeID, len(parts))
	for i := range parts {
		ids[i] = st.Fleet.Hosts[parts[i].Host].Node.ID
	}
	start.Why = fmt.Sprintf("%s: %d nodes%s%s; %s", st.Label, len(parts), of, st.Near.Words(t.Job, ids...), say.TimeWords(t.Job, typ, dur))
	for i := range parts {
		b := st.berthOn(t, &parts[i])
		for _, g := range b.GPUs {
			if start.Overtook == "" {
				start.Overtook = st.overtakes(t, g.GPU)
			}
		}
		if i == 0 {
			start.Berth = b
		} else {
			start.Rest = append(start.Rest, b)
		}
	}
	if s, ok := st.Rule.(spanner); ok {
		s.Spanned(st.Scene, t, parts)
	}
	st.commit(t, start, dur)
}

// berthOn returns what t holds of a node.
func (st *starter) berthOn(t *scene.Task, x *rules.Part) cluster.Berth {
	h := &st.Fleet.Hosts[x.Host]
	b := cluster.Berth{Node: h.Node.ID, CPUMilli: t.CoresOn(h), MemMiB: t.MemOn(h)}
	for _, ci := range x.Cards {
		share := t.Needs[st.Fleet.Groups[st.Fleet.Cards[ci].Group].Class].Share
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: st.Fleet.Cards[ci].Use.ID, Share: share})
	}
	slices.SortFunc(b.GPUs, func(x, y cluster.GPUShare) int { return cmp.Compare(x.GPU, y.GPU) })
	return b
}
