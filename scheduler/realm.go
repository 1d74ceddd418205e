package scheduler

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Jobs may be kept from some nodes or cards: by what they ask for themselves,
// and by reservations. Cards that are alike in that are a realm, and a class of
// cards is of one realm, so that where a job may lie is a question about classes
// and not about each card. Without such jobs and reservations there is one
// realm, and nothing of this is looked at.

// realm is what its places have in common.
type realm struct {
	allows []bool  // by asked-for set of nodes
	covers []int32 // the reservations that hold it, by place
}

// realms parts the cards of a fleet.
type realms struct {
	rs     []*cluster.Reservation // those that have not ended
	starts []int64                // of their windows
	shut   []bool                 // open, and nobody who waits may go there: all such are as one
	asked  []*cluster.Spec        // one job's spec for each set that is asked for
	place  map[string]int32       // of a set in asked
	list   []realm
	at     map[string]int32
	sig    []byte // scratch
}

// Bounds of sets of nodes that make realms of their own. Who asks for another
// one in a pass is given a node, see pin.
const (
	maxAsked = 16
	// maxNeeds bounds the needs of all jobs on all classes.
	maxNeeds = 4 << 20
)

// newRealms returns nil where every job may lie everywhere.
func newRealms(snap *cluster.Snapshot) *realms {
	x := &realms{place: map[string]int32{}, at: map[string]int32{}}
	inside := map[string]bool{}
	most := min(maxAsked, maxNeeds/64/max(1, len(snap.Waiting)))
	for _, j := range snap.Waiting {
		w := j.Spec.Where
		if w == nil {
			continue
		}
		inside[w.Reservation] = true
		if !j.Spec.Restricted() || j.Spec.WholeNodes() || j.Spec.NodeCount() > 1 || len(x.asked) >= most {
			continue
		}
		if key := askedKey(w); x.place[key] == 0 {
			x.asked = append(x.asked, j.Spec)
			x.place[key] = int32(len(x.asked)) // one more than its place
		}
	}
	for _, r := range snap.Reservations {
		if start, _, ok := r.Window(snap.Now); ok {
			x.rs = append(x.rs, r)
			x.starts = append(x.starts, int64(start))
			x.shut = append(x.shut, start <= snap.Now && !inside[r.Name])
		}
	}
	if len(x.asked)+len(x.rs) == 0 && len(inside) == 0 {
		return nil
	}
	return x
}

func askedKey(w *cluster.Where) string {
	return w.Nodes.String() + "\x00" + w.Exclude.String() + "\x00" + w.Features.String()
}

// of is the realm of a card, or with gpu "" of the cores of a node.
func (x *realms) of(n *cluster.Node, gpu cluster.GPUID) int32 {
	x.sig = x.sig[:0]
	for _, s := range x.asked {
		if s.Allows(n) {
			x.sig = append(x.sig, 1)
		} else {
			x.sig = append(x.sig, 0)
		}
	}
	shut := false
	for i, r := range x.rs {
		if gpu == "" && !r.CoversNode(n.ID) || gpu != "" && !r.Covers(n.ID, gpu) {
			continue
		}
		if x.shut[i] {
			if shut {
				continue
			}
			shut = true
		}
		x.sig = binary.AppendUvarint(x.sig, uint64(x.like(i)))
	}
	at, ok := x.at[string(x.sig)]
	if !ok {
		at = int32(len(x.list))
		x.at[string(x.sig)] = at
		x.list = append(x.list, x.read(x.sig))
	}
	return at
}

// like is the reservation that stands for one: the first of those that keep
// everybody out.
func (x *realms) like(i int) int {
	if x.shut[i] {
		return slices.Index(x.shut, true)
	}
	return i
}

func (x *realms) read(sig []byte) realm {
	z := realm{allows: make([]bool, len(x.asked))}
	for i := range z.allows {
		z.allows[i] = sig[i] == 1
	}
	for rest := sig[len(x.asked):]; len(rest) > 0; {
		v, n := binary.Uvarint(rest)
		z.covers, rest = append(z.covers, int32(v)), rest[n:]
	}
	return z
}

// bounds is where one job may lie.
type bounds struct {
	asked  int32 // place of its set of nodes in realms.asked, -1 for none
	own    int32 // its reservation, -1 for none
	closed bool  // that one is not open, or not for it
	single bool  // its set of nodes makes no realm
	end    int64 // until when it may last
}

// boundsOf is what p.realms say of a job.
func (x *realms) boundsOf(j *cluster.Job, now int64, rs cluster.Reservations) bounds {
	b := bounds{asked: -1, own: -1, end: now}
	if len(x.rs) > 0 {
		b.end = int64(j.LatestEnd(cluster.Time(now)))
	}
	w := j.Spec.Where
	if w == nil {
		return b
	}
	if w.Reservation != "" {
		b.own = int32(slices.IndexFunc(x.rs, func(r *cluster.Reservation) bool { return r.Name == w.Reservation }))
		b.closed = rs.Outside(j, cluster.Time(now)).Code != ""
	}
	if j.Spec.Restricted() {
		b.asked = x.place[askedKey(w)] - 1
		b.single = b.asked < 0
	}
	return b
}

// bars tells why a job may not lie in a realm.
func (x *realms) bars(b *bounds, at int32) rules.Veto {
	z := &x.list[at]
	switch {
	case b.asked >= 0 && !z.allows[b.asked]:
		return rules.VetoWhere
	case b.closed, b.own >= 0 && !slices.Contains(z.covers, b.own):
		return rules.VetoReserved
	}
	for _, r := range z.covers {
		if r != b.own && x.starts[r] < b.end {
			return rules.VetoReserved
		}
	}
	return rules.VetoNone
}

// refused reports whether a job may not lie on a node's cores.
func (s *scene) refused(it *item, host int32) bool {
	if s.realms == nil {
		return false
	}
	h := &s.f.hosts[host]
	return s.realms.bars(&it.bounds, h.realm) != rules.VetoNone || it.bounds.asked < 0 && !it.job.Spec.Allows(h.node)
}

// bind gives an item its bounds, and takes from it the classes on which it may
// not lie.
func (s *scene) bind(it *item) {
	it.bounds = s.realms.boundsOf(it.job, s.now, s.reservations)
	for c := range it.needs {
		if it.needs[c].Way == rules.WayNone {
			continue
		}
		if v := s.realms.bars(&it.bounds, s.f.classes[c].Realm); v != rules.VetoNone {
			it.needs[c].Way, it.needs[c].Why = rules.WayNone, v
		}
	}
	if it.bounds.single && it.gpus > 0 && !it.spans() && it.node == "" {
		s.pin(it)
	}
}

// pin gives a job whose set of nodes makes no realm one of them: that with the
// most empty cards on which it may lie.
func (s *scene) pin(it *item) {
	best, most := int32(-1), int64(-1)
	for i := range s.f.hosts {
		h := &s.f.hosts[i]
		if !h.use.Schedulable || !it.job.Spec.Allows(h.node) {
			continue
		}
		room := int64(-1)
		for c := h.lo; c < h.hi; c++ {
			if k := &s.f.cards[c]; k.class >= 0 && it.needs[k.class].Way != rules.WayNone {
				room = max(room, 0)
				if k.use.Shares == 0 {
					room++
				}
			}
		}
		if room > most {
			best, most = int32(i), room
		}
	}
	if best >= 0 {
		it.node = s.f.hosts[best].node.ID
		return
	}
	for c := range it.needs {
		if it.needs[c].Way != rules.WayNone {
			it.needs[c].Way, it.needs[c].Why = rules.WayNone, rules.VetoWhere
		}
	}
}

// family are the classes of cards that are like those of class c, but for where
// they are.
func (f *fleet) family(c int) (lo, hi int) {
	lo, hi = c, c+1
	for lo > 0 && f.classes[c].Alike(&f.classes[lo-1].ClassKey) {
		lo--
	}
	for hi < len(f.classes) && f.classes[c].Alike(&f.classes[hi].ClassKey) {
		hi++
	}
	return lo, hi
}

// closer tells which of two classes of one family is the better place for a job
// that fits on both: where it joins somebody, then where the fewest others may
// go, so that cards which few ask for stay free for them and those which are
// soon kept for others are used until then.
func (ft *fitter) closer(it *item, a, b int) bool {
	if x, y := ft.joins(it, a), ft.joins(it, b); x != y {
		return x
	}
	x, y := &ft.realms.list[ft.f.classes[a].Realm], &ft.realms.list[ft.f.classes[b].Realm]
	if len(x.covers) != len(y.covers) {
		return len(x.covers) > len(y.covers)
	}
	wanted := func(z *realm) (n int) {
		for _, ok := range z.allows {
			if ok {
				n++
			}
		}
		return n
	}
	if m, n := wanted(x), wanted(y); m != n {
		return m < n
	}
	return a < b
}

// joins reports whether the job would lie beside others on a class.
func (ft *fitter) joins(it *item, c int) bool {
	cards := ft.fit(it, c, nil)
	return len(cards) > 0 && ft.f.cards[cards[0]].use.Shares > 0
}

// whereReason says why a job may lie on no class, or with c < 0 on no node's
// cores.
func (tl *teller) whereReason(it *item, c int) cluster.Reason {
	if r := tl.reservations.Outside(it.job, cluster.Time(tl.now)); r.Code != "" {
		return r
	}
	lo, hi := 0, len(tl.f.hosts)
	if c >= 0 {
		k := &tl.f.classes[c]
		lo = int(k.groups[0].host)
		hi = lo + 1
	}
	for i := lo; i < hi; i++ {
		h := &tl.f.hosts[i]
		if !it.job.Spec.Allows(h.node) {
			continue
		}
		b := cluster.Berth{Node: h.node.ID}
		if c >= 0 {
			b.GPUs = []cluster.GPUShare{{GPU: tl.f.cards[tl.f.classes[c].cards[0]].use.ID}}
		}
		if r := tl.reservations.Keeps(it.job, &b, cluster.Time(tl.now)); r.Code != "" {
			r.Detail = fmt.Sprintf("node %s: %s", h.node.ID, r.Detail)
			return r
		}
	}
	return cluster.Reason{Code: cluster.ReasonWhere, Detail: "no node that takes jobs is one that it asks for (--nodelist, --exclude, --constraint)"}
}

// tellWhere puts into the state that a job waits for a reservation, or asks for
// nodes of which none will do: it stands in no queue, with whose moves the
// reasons of others come.
func (ls *lines) tellWhere(it *item) {
	if ls.realms == nil || it.job.State != cluster.JobPending || it.moved {
		return
	}
	if it.gpus > 0 && slices.ContainsFunc(it.needs, func(n rules.Need) bool { return n.Way != rules.WayNone }) {
		return
	}
	if isWhere(it.job.Reason.Code) || isWhere(ls.teller.reason(it).Code) {
		ls.tellSpan(it)
	}
}

// isWhere tells of a reason that it is about reservations, or the nodes that are
// asked for.
func isWhere(c cluster.ReasonCode) bool {
	switch c {
	case cluster.ReasonReservation, cluster.ReasonReservationGone, cluster.ReasonReservationDenied, cluster.ReasonWhere:
		return true
	}
	return false
}
