package policies

import (
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// keeper reserves room for waiting tasks.
type keeper struct {
	*scene.Scene
	holdAge time.Duration // from which on a node is emptied for a job, 0 for never
	head    *scene.Task   // the first that did not fit, for which room is reserved
	earlier cluster.JobID // for which an earlier pass reserves some, 0 for none
}

// hold reserves room for t if it is the first in the order that does not fit: EASY
// backfill (Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and
// Feitelson, TPDS 2001). The GPUs on which it could start soonest, by the time
// limits of the jobs there, take until then only jobs predicted to be gone. Since
// nothing that ends later is placed there, the promised start only gets closer from
// pass to pass, if predictions hold.
func (k *keeper) hold(t *scene.Task) {
	if k.head != nil || !k.EverFits(t) {
		return
	}
	k.head = t
	switch old := k.holdAge > 0 && time.Duration(k.Now-t.Since)*time.Microsecond >= k.holdAge; {
	case old && t.Spans():
		k.emptySpan(t)
	case t.Spans():
		k.holdSpan(t)
	case old:
		k.empty(t)
	case t.GPUs == 0:
		k.holdPlain(t)
	default:
		k.holdCards(t)
	}
}

// empty closes the first node that could hold t, whatever runs there, so that it is
// the same one in the next pass.
func (k *keeper) empty(t *scene.Task) {
	if t.GPUs == 0 {
		hi := slices.IndexFunc(k.Fleet.Hosts, func(h mirror.Host) bool { return t.CouldBeOn(&h) })
		k.keepHost(t, int32(hi), k.Now)
		return
	}
	for gi := range k.Fleet.Groups {
		if !k.CouldHold(t, int32(gi)) {
			continue
		}
		k.keepCards(k.Fleet.Groups[gi].Cards, k.Now)
		k.keepHost(t, k.Fleet.Groups[gi].Host, k.Now)
		return
	}
}

// holdCards reserves the GPUs on which t could start soonest.
func (k *keeper) holdCards(t *scene.Task) {
	best, at := int32(-1), int64(rules.Forever)
	var cards []int32
	for gi := range k.Fleet.Groups {
		if !k.CouldHold(t, int32(gi)) {
			continue
		}
		if when, on := k.Clears(t, int32(gi), at); on != nil {
			if when = k.Fleet.Hosts[k.Fleet.Groups[gi].Host].AfterKept(when, t.Needs[k.Fleet.Groups[gi].Class].Dur); when < at {
				best, at, cards = int32(gi), when, slices.Clone(on)
			}
		}
	}
	if best < 0 {
		return
	}
	k.keepCards(cards, at)
	k.keepHost(t, k.Fleet.Groups[best].Host, at)
}

// keepHost reserves what t takes of a host until a time.
func (k *keeper) keepHost(t *scene.Task, hi int32, until int64) {
	h := &k.Fleet.Hosts[hi]
	if h.Foreign {
		h.KeptCPU, h.KeptMem, h.Until = h.KeptCPU+t.CoresOn(h), h.KeptMem+t.MemOn(h), min(h.Until, until)
		return
	}
	h.KeptCPU, h.KeptMem, h.Until = t.CoresOn(h), t.MemOn(h), until
}

func (k *keeper) keepCards(cards []int32, until int64) {
	for _, ci := range cards {
		c := &k.Fleet.Cards[ci]
		if !k.Fleet.Hosts[k.Fleet.Groups[c.Group].Host].Foreign || until < c.Until {
			c.Until = until
		}
	}
}

// holdPlain reserves cores and memory of the node that is free soonest.
func (k *keeper) holdPlain(t *scene.Task) {
	best, at := int32(-1), int64(rules.Forever)
	for hi := range k.Fleet.Hosts {
		if h := &k.Fleet.Hosts[hi]; t.CouldBeOn(h) {
			if when, ok := k.ClearsPlain(t, h); ok && h.AfterKept(when, t.Dur) < at {
				best, at = int32(hi), h.AfterKept(when, t.Dur)
			}
		}
	}
	if best >= 0 {
		k.keepHost(t, best, at)
	}
}

// Kept is what a pass reserves of a node for waiting jobs: jobs that end after
// Until must leave the cores and the memory free, and may not run on the GPUs.
type Kept struct {
	Node             cluster.NodeID
	CPUMilli, MemMiB int64
	Until            cluster.Time
	GPUs             []cluster.GPUID
	For              cluster.JobID
}

// PlanBeside is Plan for some of the waiting jobs, after passes for others: their
// reservations bind it, too. It returns what is then reserved of the snapshot's
// nodes, in the order of their ids.
func (e *engine) PlanBeside(snap *dispatch.Snapshot, kept []Kept) (dispatch.Plan, []Kept) {
	p := newPass(snap, e)
	for i := range kept {
		p.keeper.honour(&kept[i])
	}
	plan := e.run(p)
	return plan, p.keeper.kept()
}

// honour keeps the reservation of an earlier pass.
func (k *keeper) honour(x *Kept) {
	hi, ok := k.Fleet.HostAt[x.Node]
	if !ok {
		return
	}
	h := &k.Fleet.Hosts[hi]
	h.KeptCPU, h.KeptMem, h.Until, h.Foreign = x.CPUMilli, x.MemMiB, int64(x.Until), true
	k.earlier = x.For
	for _, id := range x.GPUs {
		if ci, ok := k.Fleet.CardAt[id]; ok {
			k.Fleet.Cards[ci].Until = int64(x.Until)
		}
	}
}

// before returns for which job places are reserved where t waits, 0 for none.
func (k *keeper) before(t *scene.Task) cluster.JobID {
	if k.head != nil && k.head != t {
		return k.head.ID
	}
	return k.earlier
}

// kept returns what is reserved at the end of the pass.
func (k *keeper) kept() (out []Kept) {
	for hi := range k.Fleet.Hosts {
		h := &k.Fleet.Hosts[hi]
		if h.Until == rules.Forever {
			continue
		}
		kept := Kept{Node: h.Node.ID, CPUMilli: h.KeptCPU, MemMiB: h.KeptMem, Until: cluster.Time(h.Until), For: k.earlier}
		if k.head != nil && !h.Foreign {
			kept.For = k.head.ID
		}
		for _, gi := range h.Groups {
			for _, ci := range k.Fleet.Groups[gi].Cards {
				if c := &k.Fleet.Cards[ci]; c.Until < rules.Forever {
					kept.GPUs = append(kept.GPUs, c.Use.ID)
				}
			}
		}
		out = append(out, kept)
	}
	return out
}

// emptySpan closes the first nodes that could hold t.
func (k *keeper) emptySpan(t *scene.Task) {
	if first, ok := k.EverSpans(t); ok {
		k.keepParts(t, &first, k.Now)
	}
}

// holdSpan reserves the nodes on which t could start soonest, by when the last of
// them is clear; until then they take jobs that are gone by then.
func (k *keeper) holdSpan(t *scene.Task) {
	var best scene.Placed
	at := int64(rules.Forever)
	k.EachFamily(t, func(at int32) (rules.Part, bool) {
		if t.GPUs == 0 {
			when, ok := k.ClearsPlain(t, &k.Fleet.Hosts[at])
			return rules.Part{Order: k.Fleet.Hosts[at].AfterKept(when, t.Dur)}, ok
		}
		when, on := k.Clears(t, at, rules.Forever)
		when = k.Fleet.Hosts[k.Fleet.Groups[at].Host].AfterKept(when, t.Needs[k.Fleet.Groups[at].Class].Dur)
		return rules.Part{Order: when, Cards: slices.Clone(on)}, on != nil
	}, rules.SoonestParts, func(x scene.Placed) {
		if last := rules.LastOrder(x.Parts); last < at {
			best, at = x, last
		}
	})
	k.keepParts(t, &best, at)
}

// keepParts reserves what t needs of the parts' nodes until a time: the GPUs that
// they name, otherwise all of their groups.
func (k *keeper) keepParts(t *scene.Task, x *scene.Placed, until int64) {
	for i := range x.Parts {
		hi, cards := x.Parts[i].Host, x.Parts[i].Cards
		if gi, ok := x.Groups[hi]; ok && (cards == nil || t.Whole) {
			cards = k.Fleet.Groups[gi].Cards
		}
		k.keepCards(cards, until)
		k.keepHost(t, hi, until)
	}
}
