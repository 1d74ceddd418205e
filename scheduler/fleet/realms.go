package fleet

import (
	"encoding/binary"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Jobs may be kept from some nodes or GPUs, by what they ask for themselves and by
// reservations. GPUs alike in that form a realm, and a class of GPUs is of one
// realm, so where a job may run is a question about classes and not about each GPU.
// Without such jobs and reservations there is one realm, and none of this is
// consulted.

// Realm is what its places have in common.
type Realm struct {
	Allows []bool  // by asked-for set of nodes
	Covers []int32 // the reservations that hold it, by place
}

// Realms partitions the GPUs of a fleet.
type Realms struct {
	rs     []*dispatch.Reservation // those that have not ended
	starts []int64                 // of their windows
	ends   []int64                 // of the windows; the last of all shut ones
	again  []bool                  // they recur
	shut   []bool                  // open, and closed to every waiting job: all such count as one
	asked  []*cluster.Spec         // one job's spec for each set asked for
	place  map[string]int32        // of a set in asked
	List   []Realm
	at     map[string]int32
	sig    []byte // scratch
}

// Bounds of sets of nodes that make realms of their own. A job that asks for yet
// another set in a pass is assigned a node; see pin.
const (
	maxAsked = 16
	// maxNeeds bounds the needs of all jobs on all classes.
	maxNeeds = 4 << 20
)

// NewRealms returns nil if every job may run everywhere.
func NewRealms(snap *dispatch.Snapshot) *Realms {
	x := &Realms{place: map[string]int32{}, at: map[string]int32{}}
	inside := map[string]bool{}
	most := min(maxAsked, maxNeeds/64/max(1, len(snap.Waiting)))
	for _, j := range snap.Waiting {
		w := j.Spec.Where
		if w == nil || w.Reservation == "" && !w.Whole && !j.Spec.Restricted() {
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
		if start, end, ok := r.Window(snap.Now); ok {
			x.rs = append(x.rs, r)
			x.starts, x.ends = append(x.starts, int64(start)), append(x.ends, int64(end))
			x.again = append(x.again, r.Repeat != dispatch.RepeatNever)
			x.shut = append(x.shut, start <= snap.Now && !inside[r.Name])
		}
	}
	if first := slices.Index(x.shut, true); first >= 0 {
		for i := first; i < len(x.rs); i++ {
			if x.shut[i] {
				x.ends[first], x.again[first] = max(x.ends[first], x.ends[i]), x.again[first] || x.again[i]
			}
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

// of returns the realm of a GPU or, with gpu "", of the cores of a node.
func (x *Realms) of(n *cluster.Node, gpu cluster.GPUID) int32 {
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
		at = int32(len(x.List))
		x.at[string(x.sig)] = at
		x.List = append(x.List, x.read(x.sig))
	}
	return at
}

// like returns the reservation that stands for one: the first of those that keep
// every job out.
func (x *Realms) like(i int) int {
	if x.shut[i] {
		return slices.Index(x.shut, true)
	}
	return i
}

func (x *Realms) read(sig []byte) Realm {
	z := Realm{Allows: make([]bool, len(x.asked))}
	for i := range z.Allows {
		z.Allows[i] = sig[i] == 1
	}
	for rest := sig[len(x.asked):]; len(rest) > 0; {
		v, n := binary.Uvarint(rest)
		z.Covers, rest = append(z.Covers, int32(v)), rest[n:]
	}
	return z
}

// Bounds is where one job may run.
type Bounds struct {
	Asked  int32 // place of its set of nodes in realms.asked, -1 for none
	own    int32 // its reservation, -1 for none
	closed bool  // that one is not open, or not to it
	Single bool  // its set of nodes makes no realm
	end    int64 // how late it may end
}

// BoundsOf returns the bounds of a job.
func (x *Realms) BoundsOf(j *cluster.Job, now int64, rs dispatch.Reservations) Bounds {
	b := Bounds{Asked: -1, own: -1, end: now}
	if len(x.rs) > 0 {
		b.end = int64(j.LatestEnd(cluster.Time(now)))
	}
	w := j.Spec.Where
	if w == nil {
		return b
	}
	if w.Reservation != "" {
		b.own = int32(slices.IndexFunc(x.rs, func(r *dispatch.Reservation) bool { return r.Name == w.Reservation }))
		b.closed = rs.Outside(j, cluster.Time(now)).Code != ""
	}
	if j.Spec.Restricted() {
		b.Asked = x.place[askedKey(w)] - 1
		b.Single = b.Asked < 0
	}
	return b
}

// Bars says why a job may not run in a realm.
func (x *Realms) Bars(b *Bounds, at int32) rules.Veto {
	z := &x.List[at]
	switch {
	case b.Asked >= 0 && !z.Allows[b.Asked]:
		return rules.VetoWhere
	case b.closed, b.own >= 0 && !slices.Contains(z.Covers, b.own):
		return rules.VetoReserved
	}
	for _, r := range z.Covers {
		if r != b.own && x.starts[r] < b.end {
			return rules.VetoReserved
		}
	}
	return rules.VetoNone
}

// Opens returns when a realm that reservations bar for a job is first free of their
// windows for as long as the job may last. ok is false if something else bars the
// job, or if one of the reservations recurs at an unknown time.
func (x *Realms) Opens(b *Bounds, at int32, now int64) (opens int64, ok bool) {
	z := &x.List[at]
	if b.Asked >= 0 && !z.Allows[b.Asked] || b.closed || b.own >= 0 {
		return 0, false
	}
	opens = now
	for moved := true; moved; {
		moved = false
		for _, r := range z.Covers {
			if opens >= x.ends[r] || x.starts[r]-opens >= max(0, b.end-now) {
				continue
			}
			if x.again[r] {
				return 0, false
			}
			opens, moved = x.ends[r], true
		}
	}
	return opens, true
}
