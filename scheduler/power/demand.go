package power

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Limits on the demand remembered: kinds of nodes, with those beyond combined, and
// slots of each, which are five weeks of ten minutes.
const (
	MaxKinds = 64
	MaxSlots = 5 * 7 * 24 * 6
)

// The seasons of demand.
const (
	day  = 24 * time.Hour
	week = 7 * day
)

// Kind is nodes that are interchangeable: they have as many GPUs of the same types,
// and are in the same partitions.
type Kind string

// otherKinds are those beyond MaxKinds.
const otherKinds Kind = "other GPUs"

// KindOf returns the kind of a node: "8xA100-SXM4-80GB", or "8xT4 in a,b" with
// partitions.
func KindOf(n *cluster.Node, parts []*cluster.Partition) Kind {
	kind := cardsOf(n)
	first := true
	for _, p := range parts {
		switch in := p.Nodes.Holds(n.ID); {
		case in && first:
			kind, first = kind+" in "+p.Name, false
		case in:
			kind += "," + p.Name
		}
	}
	return Kind(kind)
}

func cardsOf(n *cluster.Node) string {
	if len(n.GPUs) == 0 {
		return "no GPUs"
	}
	if t := n.GPUs[0].Type; !slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool { return g.Type != t }) {
		return strconv.Itoa(len(n.GPUs)) + "x" + t
	}
	has := map[string]int{}
	for i := range n.GPUs {
		has[n.GPUs[i].Type]++
	}
	var out []string
	for _, t := range slices.Sorted(maps.Keys(has)) {
		out = append(out, strconv.Itoa(has[t])+"x"+t)
	}
	return strings.Join(out, "+")
}

// Demand is how many nodes of each kind were needed at most in every slot of time,
// the last MaxSlots of them. It reads no clock: its callers report what there is.
// The zero value, with a slot, has seen nothing.
type Demand struct {
	// Slot is the length of a slot, above 0.
	Slot  time.Duration
	kinds map[Kind]*series
}

// series is of one kind: y[i] is the demand of slot first+i, for finished slots;
// the open slot had most so far, and has had level since a time.
type series struct {
	first       int64
	y           []float64
	most, level float64
	since       cluster.Time
}

// open returns the unfinished slot.
func (s *series) open() int64 { return s.first + int64(len(s.y)) }

// slotOf returns the slot of a time.
func (d *Demand) slotOf(at cluster.Time) int64 { return int64(at) / d.Slot.Microseconds() }

// Observe records how many nodes of a kind are needed from a time on. Times do not
// decrease; one before the open slot counts for the open slot. A level that holds
// for no time is not counted.
func (d *Demand) Observe(kind Kind, at cluster.Time, needed int) {
	s := d.of(kind, at)
	if s.pass(d.slotOf(at)); at > s.since {
		if int64(at)%d.Slot.Microseconds() != 0 {
			s.most = max(s.most, s.level)
		}
		s.since = at
	}
	s.level = float64(needed)
}

// keep forgets all kinds but the given ones.
func (d *Demand) keep(there map[Kind]*Outlook) {
	maps.DeleteFunc(d.kinds, func(k Kind, _ *series) bool { return there[k] == nil })
}

// of returns the series of a kind, starting a new one at a time if there is none.
func (d *Demand) of(kind Kind, at cluster.Time) *series {
	s := d.kinds[kind]
	if s == nil {
		s = &series{first: d.slotOf(at), since: at}
		if d.kinds == nil {
			d.kinds = map[Kind]*series{}
		}
		d.kinds[kind] = s
	}
	return s
}

// pass closes the slots before slot.
func (s *series) pass(slot int64) {
	gone := slot - s.open()
	if gone <= 0 {
		return
	}
	if gone > MaxSlots { // nothing from before is remembered
		s.first, s.y, s.most = slot-MaxSlots, s.y[:0], s.level
		gone = MaxSlots
	}
	s.y = append(s.y, max(s.most, s.level))
	for range gone - 1 {
		s.y = append(s.y, s.level)
	}
	s.most = 0
	if over := len(s.y) - MaxSlots; over > 0 {
		s.first += int64(over)
		s.y = append(s.y[:0], s.y[over:]...)
	}
}

// Until closes the slots of all kinds that end by a time.
func (d *Demand) Until(at cluster.Time) {
	for _, s := range d.kinds {
		s.pass(d.slotOf(at))
	}
}

// Slots returns the demands of a kind's finished slots, oldest first. Callers must
// not modify them.
func (d *Demand) Slots(kind Kind) []float64 {
	if s := d.kinds[kind]; s != nil {
		return s.y
	}
	return nil
}

// Span is a job's hold on a node of a kind from one time to another; To is 0 while
// it lasts.
type Span struct {
	Node     cluster.NodeID
	Kind     Kind
	From, To cluster.Time
}

// Recall replaces what is known of the time from since until now: which jobs held
// nodes, in any order, and that nothing else was needed of the given kinds. Earlier
// observations are forgotten.
func (d *Demand) Recall(kinds []Kind, spans []Span, since, now cluster.Time) {
	since = max(since, now.Add(-MaxSlots*d.Slot))
	d.kinds = nil
	for _, k := range kinds {
		d.Observe(k, since, 0)
	}
	type turn struct {
		at   cluster.Time
		span int
		by   int
	}
	var turns []turn
	for i, s := range spans {
		if s.To != 0 && (s.To <= since || s.To <= s.From) || s.From >= now {
			continue
		}
		turns = append(turns, turn{max(s.From, since), i, 1})
		if s.To != 0 && s.To < now {
			turns = append(turns, turn{s.To, i, -1})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by), cmp.Compare(a.span, b.span))
	})
	holders, held := map[cluster.NodeID]int{}, map[Kind]int{}
	for _, t := range turns {
		s := &spans[t.span]
		was := holders[s.Node]
		holders[s.Node] += t.by
		if (was == 0) == (holders[s.Node] == 0) {
			continue
		}
		held[s.Kind] += t.by
		d.Observe(s.Kind, t.at, held[s.Kind])
	}
	d.Until(now)
}

// SpansOf returns the nodes that the attempts of a job held, among those in kinds;
// a live attempt still holds its own.
func SpansOf(j *cluster.Job, kinds map[cluster.NodeID]Kind) (out []Span) {
	for i := range j.Attempts {
		a := &j.Attempts[i]
		to := a.Ended
		if to == 0 && a != j.Live() {
			to = max(j.Ended, a.Placed)
		}
		for _, id := range a.NodeIDs() {
			if k, known := kinds[id]; known && a.Placed != 0 {
				out = append(out, Span{Node: id, Kind: k, From: a.Placed, To: to})
			}
		}
	}
	return out
}
