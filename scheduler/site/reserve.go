package site

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/hostnames"
)

// Want is what a reservation should hold: so many nodes, 0 for all with the
// features, or so many GPUs.
type Want struct {
	Nodes, GPUs int
	// GPUType is the GPUs' type, "" for any; Partition is where, "" for anywhere.
	GPUType, Features, Partition string
	// Overlap also takes what other reservations hold.
	Overlap bool
}

// candidate is a node or GPU that a reservation could hold, and when it is free at
// the latest.
type candidate struct {
	node *cluster.Node
	gpu  *cluster.GPU
	free cluster.Time
}

// candidates returns the nodes that the request allows and that no other
// reservation holds at that time.
func candidates(r *dispatch.Reservation, want *Want, snap *dispatch.Snapshot) ([]*cluster.Node, error) {
	features, err := cluster.ParseFeatures(want.Features)
	if err != nil {
		return nil, err
	}
	r.Features = features.String()
	var part *cluster.Partition
	if want.Partition != "" {
		i := slices.IndexFunc(snap.Partitions, func(p *cluster.Partition) bool { return p.Name == want.Partition })
		if i < 0 {
			return nil, cluster.Errorf(cluster.CodeNotFound, "partition %q is not known; see: berth partition list", want.Partition)
		}
		part = snap.Partitions[i]
	}
	var out []*cluster.Node
	for _, n := range NodesOf(snap.Nodes, part) {
		if (n.Schedulable() || n.Wakeable()) && features.Match(n.Features) {
			out = append(out, n)
		}
	}
	return out, nil
}

// taken reports whether another reservation holds a node, or one GPU of it, while r
// is open.
func taken(r *dispatch.Reservation, n *cluster.Node, g *cluster.GPU, snap *dispatch.Snapshot) bool {
	probe := *r
	probe.Nodes, _ = cluster.ParseHostList(string(n.ID))
	probe.GPUs = nil
	if g != nil {
		probe.GPUs = []cluster.GPUID{g.ID}
	}
	return slices.ContainsFunc(snap.Reservations, func(o *dispatch.Reservation) bool {
		_, meet := Overlap(&probe, o, snap)
		return o.Name != r.Name && meet
	})
}

// freeAt returns when every job on a node, or on one GPU of it, has ended.
func freeAt(snap *dispatch.Snapshot) (nodes map[cluster.NodeID]cluster.Time, gpus map[cluster.GPUID]cluster.Time) {
	nodes, gpus = map[cluster.NodeID]cluster.Time{}, map[cluster.GPUID]cluster.Time{}
	for _, j := range snap.Running {
		a := j.Live()
		if a == nil {
			continue
		}
		end := j.LatestEnd(max(a.Started, a.Placed))
		for _, b := range a.Held() {
			nodes[b.Node] = max(nodes[b.Node], end)
			for _, g := range b.GPUs {
				gpus[g.GPU] = max(gpus[g.GPU], end)
			}
		}
	}
	return nodes, gpus
}

func soonest1st(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.free, b.free), cmp.Compare(a.node.ID, b.node.ID), compareIndex(a.gpu, b.gpu))
}

func compareIndex(a, b *cluster.GPU) int {
	if a == nil || b == nil {
		return 0
	}
	return cmp.Compare(a.Index, b.Index)
}

// ChooseNodes makes r hold as many nodes as asked for, with the features, those
// that are free soonest; without a number, all with the features.
func ChooseNodes(r *dispatch.Reservation, want *Want, snap *dispatch.Snapshot) error {
	nodes, err := candidates(r, want, snap)
	if err != nil {
		return err
	}
	free, _ := freeAt(snap)
	var able []candidate
	for _, n := range nodes {
		if r.Maint || want.Overlap || !taken(r, n, nil, snap) {
			able = append(able, candidate{node: n, free: free[n.ID]})
		}
	}
	slices.SortFunc(able, soonest1st)
	count := cmp.Or(want.Nodes, len(able))
	if len(able) < count || count == 0 {
		return cluster.Errorf(cluster.CodeInvalid, "nodes: %d are asked for, %d have what is asked for, take jobs and are in no other reservation then", max(1, count), len(able))
	}
	ids := make([]cluster.NodeID, count)
	for i := range ids {
		ids[i] = able[i].node.ID
	}
	r.GPUs = nil
	return setNodes(r, ids)
}

// ChooseGPUs makes r hold as many GPUs as asked for, of a type if one is given,
// from as few nodes as possible, of those that are free soonest.
func ChooseGPUs(r *dispatch.Reservation, want *Want, snap *dispatch.Snapshot) error {
	nodes, err := candidates(r, want, snap)
	if err != nil {
		return err
	}
	_, free := freeAt(snap)
	start, _, _ := r.Window(snap.Now)
	by := map[cluster.NodeID][]candidate{}
	var order []cluster.NodeID
	all := 0
	for _, n := range nodes {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if want.GPUType != "" && g.Type != want.GPUType || !n.Open(g) || !want.Overlap && !r.Maint && taken(r, n, g, snap) {
				continue
			}
			// All that are free by then are equally good.
			by[n.ID] = append(by[n.ID], candidate{node: n, gpu: g, free: max(start, free[g.ID])})
			all++
		}
		if len(by[n.ID]) > 0 {
			order = append(order, n.ID)
		}
	}
	count := want.GPUs
	if all < count {
		return cluster.Errorf(cluster.CodeInvalid, "gpus: %d are asked for, %d are of that kind, in service and in no other reservation then", count, all)
	}
	for _, id := range order {
		slices.SortFunc(by[id], soonest1st)
	}
	slices.SortStableFunc(order, func(a, b cluster.NodeID) int { return nodeOrder(by[a], by[b], count) })
	var ids []cluster.NodeID
	r.GPUs = nil
	for _, id := range order {
		if count == 0 {
			break
		}
		ids = append(ids, id)
		for _, c := range by[id][:min(count, len(by[id]))] {
			r.GPUs = append(r.GPUs, c.gpu.ID)
			count--
		}
	}
	slices.Sort(r.GPUs)
	return setNodes(r, ids)
}

// nodeOrder puts nodes first whose GPUs, as many as wanted, are free soonest, then
// those that suffice with the fewest left over, then the largest.
func nodeOrder(a, b []candidate, want int) int {
	at := func(c []candidate) cluster.Time { return c[min(want, len(c))-1].free }
	over := func(c []candidate) int {
		if len(c) >= want {
			return len(c) - want
		}
		return 1<<20 - len(c)
	}
	return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(over(a), over(b)), cmp.Compare(a[0].node.ID, b[0].node.ID))
}

func setNodes(r *dispatch.Reservation, ids []cluster.NodeID) (err error) {
	r.Nodes, err = cluster.ParseHostList(hostnames.Fold(ids))
	return err
}

// InTheWay returns the jobs of others that run on what a reservation holds and may
// not have ended when its window begins. Jobs on loan that can save their state are
// none, unless it is for maintenance: they give back when its jobs wait.
func InTheWay(r *dispatch.Reservation, snap *dispatch.Snapshot, now cluster.Time) (out []*cluster.Job) {
	start, _, ok := r.Window(now)
	if !ok {
		return nil
	}
	for _, j := range snap.Running {
		a := j.Live()
		if a == nil || j.Spec.Where.InReservation() == r.Name || a.Loan != "" && j.Spec.Checkpoint.Set() && !r.Maint {
			continue
		}
		began := cmp.Or(max(a.Started, a.Placed), now)
		if j.LatestEnd(began) <= start {
			continue
		}
		for _, b := range a.Held() {
			if _, on := r.BarsBerth(j, b, now, start+1); on {
				out = append(out, j)
				break
			}
		}
	}
	return out
}

// Overlap reports whether two reservations hold the same at the same time, and from
// when on.
func Overlap(a, b *dispatch.Reservation, snap *dispatch.Snapshot) (cluster.Time, bool) {
	shares := slices.ContainsFunc(snap.Nodes, func(n *cluster.Node) bool {
		return a.Nodes.Holds(n.ID) && b.Nodes.Holds(n.ID) && (len(n.GPUs) == 0 && a.CoversNode(n.ID) && b.CoversNode(n.ID) ||
			slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool { return a.Covers(n.ID, g.ID) && b.Covers(n.ID, g.ID) }))
	})
	if !shares {
		return 0, false
	}
	// Once both have begun, windows of weeks and days meet within a week and a day,
	// or never.
	at := max(snap.Now, a.Start, b.Start)
	const mostWindows = 64
	for range mostWindows {
		as, ae, ok1 := a.Window(at)
		bs, be, ok2 := b.Window(at)
		switch {
		case !ok1 || !ok2:
			return 0, false
		case as < be && bs < ae:
			return max(as, bs), true
		}
		at = min(ae, be)
	}
	return 0, false
}
