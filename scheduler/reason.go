package scheduler

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// teller says why jobs wait.
type teller struct {
	*scene
	fitter  *fitter
	told    map[shape]cluster.Reason
	limited map[cluster.JobID]cluster.Reason // by quotas
}

// tellUnplaced gives each job that does not start its reason.
func (p *pass) tellUnplaced() {
	if p.pol.MaxReasons < 0 {
		return
	}
	n := 0
	for i := range p.items {
		if !p.items[i].gone {
			n++
		}
	}
	if n == 0 {
		return
	}
	p.plan.Unplaced = make([]dispatch.Unplaced, 0, n)
	for i := range p.items {
		if it := &p.items[i]; !it.gone {
			p.plan.Unplaced = append(p.plan.Unplaced, dispatch.Unplaced{Job: it.id, Reason: p.teller.reason(it)})
		}
	}
}

// reason returns why a job does not start. Jobs of one shape share the words.
func (tl *teller) reason(it *item) cluster.Reason {
	if r, ok := tl.limited[it.id]; ok {
		return r
	}
	c := tl.likeliest(it)
	if it.spans() && (c >= 0 || it.gpus == 0 && len(tl.f.Order) > 0) {
		return tl.spanReason(it, c)
	}
	if c < 0 {
		if it.gpus == 0 {
			return tl.plainReason(it)
		}
		return tl.neverReason(it)
	}
	if tl.traded(it, c) {
		return cluster.Reason{Code: cluster.ReasonQueueOrder, Detail: tl.tradedWords(it, c)}
	}
	key := tl.fitter.shapeOf(it, c)
	if r, ok := tl.told[key]; ok {
		return r
	}
	r := tl.missing(it, c, len(tl.told) < tl.pol.MaxReasons)
	if len(tl.told) < tl.pol.MaxReasons {
		tl.told[key] = r
	}
	return r
}

// likeliest is the class whose shortage is reported: that of the job's queue,
// otherwise the fastest.
func (tl *teller) likeliest(it *item) int {
	if it.queue >= 0 {
		if c := tl.f.Cards[it.queue].Class; c >= 0 && it.needs[c].Way != rules.WayNone {
			return int(c)
		}
	}
	best := -1
	for c := range it.needs {
		if it.needs[c].Way != rules.WayNone && (best < 0 || it.needs[c].Dur < it.needs[best].Dur) {
			best = c
		}
	}
	return best
}

// missing says what the job misses on class c; words are costly and made only on
// request.
func (tl *teller) missing(it *item, c int, inWords bool) cluster.Reason {
	k, n := &tl.f.Classes[c], &it.needs[c]
	want := tl.fitter.want(it, c)
	most, empty := tl.mostRoom(it, k, n.Way)
	code := cluster.ReasonResources
	switch {
	case n.Way == rules.WayWhole && it.gpus > 1 && empty < it.gpus:
		code = cluster.ReasonGPUs
	case n.Way == rules.WayWhole && empty == 0:
		code = cluster.ReasonExclusive
	case most.Mem < 0: // closed by waiting jobs that an arrival pass cannot see
		code = cluster.ReasonQueueOrder
	case most.Mem < want.Mem:
		code = cluster.ReasonGPUMem
	case most.Milli < want.Milli:
		code = cluster.ReasonGPUCompute
	case most.Slots < 1:
		code = cluster.ReasonGPUSlots
	case most.CPU < want.CPU:
		code = cluster.ReasonCPU
	case most.Host < want.Host:
		code = cluster.ReasonHostMem
	case most.Until < want.Until:
		code = cluster.ReasonQueueOrder
	}
	if code == cluster.ReasonResources && n.Way == rules.WayWhole && it.gpus > 1 && empty >= it.gpus && tl.fitter.strict(it, k, n.Dur) {
		return cluster.Reason{Code: cluster.ReasonGPUs, Detail: k.GPUType + ": " + tl.farWords(it, n)}
	}
	on := int32(-1)
	if code == cluster.ReasonResources {
		if on = tl.likely(it, c, &want); on >= 0 && !tl.fitter.agrees(it, c, on) {
			code = cluster.ReasonSharing
		}
	}
	if !inWords {
		return cluster.Reason{Code: code}
	}
	if code == cluster.ReasonSharing {
		v := tl.fitter.judge(it, n, on)
		return cluster.Reason{Code: code, Detail: k.GPUType + ": " + v.Words(tl.crowd.rules[on].Sharing, tl.pol.MaxSlowdownMilli)}
	}
	return cluster.Reason{Code: code, Detail: k.GPUType + ": " + tl.words(it, c, code, &most, empty) + tl.f.ClosedWords(k.GPUType)}
}

// farWords describe a gang for which enough GPUs are free, but in several NUMA
// groups.
func (tl *teller) farWords(it *item, n *rules.Need) string {
	left := int64(it.job.Eligible) + min(n.Dur/10, tl.pol.NearAge.Microseconds()) - tl.now
	return fmt.Sprintf("%d GPUs of one NUMA group are not free on any node; takes GPUs of several in %s", it.gpus, say.About(left))
}

func (tl *teller) words(it *item, c int, code cluster.ReasonCode, most *fleet.Room, empty int) string {
	k, n := &tl.f.Classes[c], &it.needs[c]
	switch code {
	case cluster.ReasonGPUs:
		return fmt.Sprintf("%s free on one node, needs %d", say.GPUs(empty), it.gpus)
	case cluster.ReasonExclusive:
		return "no GPU is empty, needs one alone"
	case cluster.ReasonGPUMem:
		return fmt.Sprintf("at most %s free on one GPU, needs %s", cluster.MemText(max(0, most.Mem)), cluster.MemText(n.Mem))
	case cluster.ReasonGPUCompute:
		return fmt.Sprintf("at most %s of one GPU free, needs %s", say.Percent(max(0, most.Milli)), say.Percent(n.Milli))
	case cluster.ReasonGPUSlots:
		return fmt.Sprintf("%s on each GPU, no more may share one", say.Jobs(min(tl.pol.MaxShares, k.Rep.MaxShares)))
	case cluster.ReasonCPU:
		return fmt.Sprintf("at most %s free beside a GPU with room, needs %s", say.Cores(max(0, most.CPU)), say.Cores(it.cpu))
	case cluster.ReasonHostMem:
		return fmt.Sprintf("at most %s of host memory free beside a GPU with room, needs %s", cluster.MemText(max(0, most.Host)), cluster.MemText(it.mem))
	case cluster.ReasonQueueOrder:
		return fmt.Sprintf("GPUs with room are kept for jobs that waited longer, needs one for %s", say.About(n.Dur))
	}
	return fmt.Sprintf("no GPU has all at once of %s, %s of its compute, %s and %s of host memory",
		cluster.MemText(n.Mem), say.Percent(n.Milli), say.Cores(it.cpu), cluster.MemText(it.mem))
}

// mostRoom returns the most of each resource on any GPU that the job may use, and
// the most empty GPUs on one node.
func (tl *teller) mostRoom(it *item, k *fleet.Class, w rules.Way) (most fleet.Room, empty int) {
	if node := it.node; node != "" {
		most = fleet.Nowhere()
		g := tl.f.GroupOn(node, k)
		if g == nil {
			return most, 0
		}
		for _, i := range k.Cards[g.Lo:g.Hi] {
			r := tl.f.Room(&tl.f.Cards[i])
			most = most.Most(&r)
		}
		return most, int(g.Empty)
	}
	most = k.Empty.At[1]
	if w == rules.WayShare {
		most = most.Most(&k.Used.At[1])
	}
	for empty = len(k.Free) - 1; empty > 0 && k.Free[empty].Next(0) < 0; {
		empty--
	}
	return most, empty
}

func (tl *teller) plainReason(it *item) cluster.Reason {
	most := tl.f.Plain.At[1]
	if tl.realms != nil && len(tl.f.Order) > 0 && !slices.ContainsFunc(tl.f.Order, func(i int32) bool { return !tl.refused(it, i) }) {
		return tl.whereReason(it, -1)
	}
	switch {
	case len(tl.f.Hosts) == 0:
		return cluster.Reason{Code: cluster.ReasonNoNodes, Detail: "no node is registered"}
	case len(tl.f.Order) == 0:
		return cluster.Reason{Code: cluster.ReasonNodeDown, Detail: "every node is drained or silent"}
	case most.CPU < it.cpu:
		return cluster.Reason{Code: cluster.ReasonCPU, Detail: fmt.Sprintf("at most %s free on one node, needs %s", say.Cores(max(0, most.CPU)), say.Cores(it.cpu))}
	case most.Host < it.mem:
		return cluster.Reason{Code: cluster.ReasonHostMem, Detail: fmt.Sprintf("at most %s of host memory free on one node, needs %s", cluster.MemText(max(0, most.Host)), cluster.MemText(it.mem))}
	}
	return cluster.Reason{Code: cluster.ReasonResources, Detail: fmt.Sprintf("no node has %s and %s of host memory at once", say.Cores(it.cpu), cluster.MemText(it.mem))}
}

// neverReason returns why no class at all can run the job.
func (tl *teller) neverReason(it *item) cluster.Reason {
	if len(tl.f.Hosts) == 0 {
		return cluster.Reason{Code: cluster.ReasonNoNodes, Detail: "no node is registered"}
	}
	if len(tl.f.Cards) == 0 {
		return cluster.Reason{Code: cluster.ReasonNeverFits, Detail: "no node has a GPU"}
	}
	if len(tl.f.Classes) == 0 {
		if closed := tl.f.ClosedInAll(); closed > 0 {
			return cluster.Reason{Code: cluster.ReasonNodeDown, Detail: say.GPUs(closed) + " drained or not sound, and no other on a node that takes jobs"}
		}
		return cluster.Reason{Code: cluster.ReasonNodeDown, Detail: "every node with GPUs is drained or silent"}
	}
	worst := cluster.Reason{}
	for c := range it.needs {
		k := &tl.f.Classes[c]
		if it.needs[c].Why == rules.VetoReserved {
			return tl.whereReason(it, c)
		}
		e, _ := cluster.EstimateFor(it.job.Estimates, k.GPUType)
		if r := rules.VetoReason(it.job, k.Rep, &e, &it.needs[c], &tl.pol); worst.Code == "" || r.Code != cluster.ReasonGPUType {
			worst = r
		}
	}
	return worst
}

// whereReason returns why a job may run on no class or, with c < 0, on no node's
// cores.
func (tl *teller) whereReason(it *item, c int) cluster.Reason {
	if r := tl.reservations.Outside(it.job, cluster.Time(tl.now)); r.Code != "" {
		return r
	}
	lo, hi := 0, len(tl.f.Hosts)
	if c >= 0 {
		k := &tl.f.Classes[c]
		lo = int(k.Groups[0].Host)
		hi = lo + 1
	}
	for i := lo; i < hi; i++ {
		h := &tl.f.Hosts[i]
		if !it.job.Spec.Allows(h.Node) {
			continue
		}
		b := cluster.Berth{Node: h.Node.ID}
		if c >= 0 {
			b.GPUs = []cluster.GPUShare{{GPU: tl.f.Cards[tl.f.Classes[c].Cards[0]].Use.ID}}
		}
		if r := tl.reservations.Keeps(it.job, &b, cluster.Time(tl.now)); r.Code != "" {
			r.Detail = fmt.Sprintf("node %s: %s", h.Node.ID, r.Detail)
			return r
		}
	}
	return cluster.Reason{Code: cluster.ReasonWhere, Detail: "no node that takes jobs is one that it asks for (--nodelist, --exclude, --constraint)"}
}

// isWhere reports whether a reason is about reservations or requested nodes.
func isWhere(c cluster.ReasonCode) bool {
	switch c {
	case cluster.ReasonReservation, cluster.ReasonReservationGone, cluster.ReasonReservationDenied, cluster.ReasonWhere:
		return true
	}
	return false
}
