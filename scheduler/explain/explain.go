// Package explain tells users why a job waits, when it is expected to start, and when
// quotas have room for it.
package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/company"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// Explanation is one reason why a job waits, in the numbers of the place that comes
// nearest, and the number of GPUs (for a job without GPUs, nodes) it applies to.
type Explanation struct {
	Reason cluster.Reason
	Count  int
	// GPUType is the type of these GPUs, "" for reasons about whole nodes.
	GPUType string
}

// Why says why job waits, worst first, from every GPU of the snapshot. It serves
// users who ask about one job; passes never call it.
func Why(snap *dispatch.Snapshot, job *cluster.Job, pol rules.Policy, by Passes) []Explanation {
	if len(snap.Nodes) == 0 {
		return []Explanation{{Reason: cluster.Reason{Code: cluster.ReasonNoNodes, Detail: "no node is registered; the job starts when a suitable one joins"}}}
	}
	c := rules.CoresOf(job, &pol)
	if c != nil && rules.NeverFits(snap.Nodes, job, pol) == nil && rules.NeverOn(snap.Nodes, job, pol) != "" {
		job, c = c.Plain(job), nil
	}
	x := newExplainer(snap, job, pol, by)
	for _, n := range rules.SortedNodes(snap.Nodes) {
		x.node(n)
	}
	if c != nil {
		x.coresExplain(c)
	}
	x.queue()
	x.never()
	slices.SortStableFunc(x.out, func(a, b finding) int {
		return cmp.Or(cmp.Compare(severity(a.code), severity(b.code)), cmp.Compare(a.gpuType, b.gpuType))
	})
	out := make([]Explanation, 0, len(x.out)+1)
	for _, r := range snap.Running {
		if a := r.Live(); a != nil && a.Preempt != nil && a.Preempt.For == job.ID {
			out = append(out, Explanation{Reason: cluster.Reason{Code: cluster.ReasonUnconfirmed, Detail: fmt.Sprintf("job %d saves its state and makes room for this one", r.ID)}})
		}
	}
	several := job.Spec.NodeCount() > 1 || job.Spec.WholeNodes()
	if several {
		out = append(out, x.span(pol))
	}
	for _, f := range x.out {
		if several && (f.code == cluster.ReasonUnconfirmed || f.code == cluster.ReasonQueueOrder) {
			continue // one node decides nothing, and such a job is in no queue
		}
		out = append(out, Explanation{Reason: cluster.Reason{Code: f.code, Detail: f.words()}, Count: f.count, GPUType: f.gpuType})
	}
	return out
}

func newExplainer(snap *dispatch.Snapshot, job *cluster.Job, pol rules.Policy, by Passes) *explainer {
	x := &explainer{snap: snap, job: job, pol: pol, by: by, on: map[cluster.GPUID][]*cluster.Job{}, spares: map[cluster.JobID]*rules.Sparing{}}
	x.cpu, x.mem = rules.HostOf(job, &pol)
	for _, r := range snap.Running {
		if a := r.Live(); a != nil {
			for _, gs := range a.HeldGPUs() {
				x.on[gs.GPU] = append(x.on[gs.GPU], r)
			}
		}
	}
	return x
}

// need returns what a job takes of a GPU, with everything that a pass would hold
// against it.
func (x *explainer) need(j *cluster.Job, g *cluster.GPU) (rules.Need, *cluster.Estimate) {
	e, _ := cluster.EstimateFor(j.Estimates, g.Type)
	nd := rules.NeedOn(j, g, &e, &x.pol)
	if nd.Way != rules.WayNone && (j.MinGPUMemMiB > g.SellableMiB || nd.Tight) {
		if nd.Why = x.sparing(j).Veto(g, &nd); nd.Why != rules.VetoNone {
			nd.Way = rules.WayNone
		}
	}
	return nd, &e
}

func (x *explainer) sparing(j *cluster.Job) *rules.Sparing {
	if s := x.spares[j.ID]; s != nil {
		return s
	}
	if x.places == nil {
		x.places = rules.PlacesOf(x.snap.Nodes)
	}
	places := x.places
	if j.Spec.Node != "" || j.Spec.Restricted() {
		places = rules.PlacesOf(slices.DeleteFunc(slices.Clone(x.snap.Nodes), func(n *cluster.Node) bool { return !j.Spec.Allows(n) }))
	}
	s := rules.SparingOf(places, j, &x.pol)
	x.spares[j.ID] = &s
	return &s
}

// severity orders reasons from the one that will never pass to the one that passes
// by itself. Other codes come last.
func severity(c cluster.ReasonCode) int {
	order := [...]cluster.ReasonCode{
		cluster.ReasonNeverFits, cluster.ReasonNoNodes, cluster.ReasonReservation, cluster.ReasonWhere, cluster.ReasonNodeDown, cluster.ReasonGPUType,
		cluster.ReasonGPUs, cluster.ReasonExclusive, cluster.ReasonGPUMem, cluster.ReasonGPUCompute, cluster.ReasonGPUSlots,
		cluster.ReasonHostMem, cluster.ReasonCPU, cluster.ReasonSharing, cluster.ReasonQueueOrder, cluster.ReasonResources,
		cluster.ReasonUnconfirmed,
	}
	if i := slices.Index(order[:], c); i >= 0 {
		return i
	}
	return len(order)
}

// finding collects the places of one GPU type that lack the same thing.
type finding struct {
	code    cluster.ReasonCode
	gpuType string
	count   int
	short   int64 // how much the nearest place lacks
	words   func() string
}

type explainer struct {
	snap     *dispatch.Snapshot
	job      *cluster.Job
	pol      rules.Policy
	by       Passes
	cpu, mem int64
	on       map[cluster.GPUID][]*cluster.Job
	down     []*cluster.Node
	closed   []string // GPUs that take no jobs, and why
	places   []rules.Place
	spares   map[cluster.JobID]*rules.Sparing
	kept     func(cluster.GPUID) cluster.JobID // see keptFor; nil until first needed
	out      []finding
}

// tally counts a place that lacks short of something, and keeps the words of the
// nearest place.
func (x *explainer) tally(code cluster.ReasonCode, count int, short int64, words func() string) {
	x.tallyOn("", code, count, short, words)
}

// tallyOn is tally for GPUs of one type.
func (x *explainer) tallyOn(gpuType string, code cluster.ReasonCode, count int, short int64, words func() string) {
	for i := range x.out {
		if f := &x.out[i]; f.code == code && f.gpuType == gpuType {
			if f.count += count; short < f.short {
				f.short, f.words = short, words
			}
			return
		}
	}
	x.out = append(x.out, finding{code, gpuType, count, short, words})
}

func (x *explainer) node(n *cluster.Node) {
	count := 1
	if x.job.Spec.GPUs > 0 {
		count = x.vetoes(n)
	}
	u, ok := x.snap.Ledger.Node(n.ID)
	if !ok || count == 0 || x.job.Spec.Node != "" && x.job.Spec.Node != n.ID {
		return
	}
	if why := x.job.Spec.Refuses(n); why != "" {
		x.tally(cluster.ReasonWhere, count, 0, func() string { return fmt.Sprintf("node %s %s", n.ID, why) })
		return
	}
	if n.Schedulable() {
		if count = x.tallyReserved(n, count); count < 0 {
			return
		}
	}
	switch freeCPU, freeMem := u.CPUMilli-u.UsedCPU, u.MemMiB-u.UsedMem; {
	case !n.Schedulable():
		x.down = append(x.down, n)
		x.tally(cluster.ReasonNodeDown, count, 0, x.namesOfDown)
	case freeMem < x.mem:
		x.tally(cluster.ReasonHostMem, count, x.mem-freeMem, func() string {
			return fmt.Sprintf("node %s: %s of host memory free, needs %s", n.ID, cluster.MemText(max(0, freeMem)), cluster.MemText(x.mem))
		})
	case freeCPU < x.cpu:
		x.tally(cluster.ReasonCPU, count, x.cpu-freeCPU, func() string {
			return fmt.Sprintf("node %s: %s free, needs %s", n.ID, say.Cores(max(0, freeCPU)), say.Cores(x.cpu))
		})
	case x.job.Spec.GPUs == 0 && x.keptFromPlain(n, &u):
		x.tally(cluster.ReasonCPU, 1, 0, func() string {
			return fmt.Sprintf("node %s: %s and %s of host memory free, but kept for idle GPUs while jobs wait for them", n.ID, say.Cores(freeCPU), cluster.MemText(freeMem))
		})
	case x.job.Spec.GPUs == 0:
		x.tally(cluster.ReasonUnconfirmed, 1, 0, func() string {
			return fmt.Sprintf("node %s has room; the next pass decides", n.ID)
		})
	default:
		x.gpus(n)
	}
}

// mostDown bounds how many nodes out of service are named.
const mostDown = 4

// namesOfDown names the nodes that take no jobs, and says why.
func (x *explainer) namesOfDown() string {
	var b strings.Builder
	for i, n := range x.down {
		switch {
		case i == mostDown:
			fmt.Fprintf(&b, "; and %d more", len(x.down)-i)
			return b.String()
		case i > 0:
			b.WriteString("; ")
		}
		b.WriteString("node " + string(n.ID))
		switch {
		case n.Drain && n.DrainReason != "":
			b.WriteString(" is drained: " + n.DrainReason)
		case n.Drain:
			b.WriteString(" is drained")
		case n.Power.State == cluster.PowerFailed && n.Power.Why != "":
			b.WriteString(" is down: it " + n.Power.Why)
		case n.Power.State != cluster.PowerUp:
			b.WriteString(" is " + strings.ReplaceAll(n.Power.State.String(), "-", " "))
		default:
			b.WriteString(" is silent")
		}
	}
	if len(x.closed) > 0 {
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s out of service: ", say.GPUs(len(x.closed)))
	}
	for i, words := range x.closed {
		switch {
		case i+len(x.down) == mostDown:
			fmt.Fprintf(&b, "; and %d more", len(x.closed)-i)
			return b.String()
		case i > 0:
			b.WriteString("; ")
		}
		b.WriteString(words)
	}
	return b.String()
}

// never reports the case that nothing could ever run the job. It applies to every
// place, also those counted for what they lack today.
func (x *explainer) never() {
	e := rules.NeverFits(x.snap.Nodes, x.job, x.pol)
	if own := x.own(x.job); e == nil && own != nil {
		if lack := rules.NeverFits(own.Of(x.snap.Nodes), x.job, x.pol); lack != nil {
			x.tally(cluster.ReasonReservation, 1, 0, func() string { return "inside reservation " + own.Name + " it is " + lack.Msg })
		}
	}
	if e == nil {
		return
	}
	count := 0
	for _, n := range x.snap.Nodes {
		count += max(1, len(n.GPUs))
	}
	for _, f := range x.out {
		if f.code == cluster.ReasonNeverFits {
			count -= f.count
		}
	}
	x.tally(cluster.ReasonNeverFits, count, math.MinInt64, func() string { return e.Msg })
}

// gpu tallies what the job lacks on one GPU and reports whether it lacks nothing.
func (x *explainer) gpu(n *cluster.Node, g *cluster.GPU) bool {
	nd, _ := x.need(x.job, g)
	if nd.Way == rules.WayNone {
		return false // tallied by vetoes
	}
	u, ok := x.snap.Ledger.GPU(g.ID)
	if !ok {
		return false
	}
	if r := x.reservedOn(n, g); r.Code != "" {
		return false // tallied by node
	}
	if u.Closed {
		x.closed = append(x.closed, cardName(n, g)+" is "+n.Why(g))
		x.tally(cluster.ReasonNodeDown, 1, 0, x.namesOfDown)
		return false
	}
	code, short, what := x.lack(g, &nd, &u)
	if code == "" {
		return true
	}
	x.tallyOn(g.Type, code, 1, short, func() string { return cardName(n, g) + ": " + what + x.company(g) })
	return false
}

// lack says what a need misses on one GPU, "" for nothing, and how much.
func (x *explainer) lack(g *cluster.GPU, nd *rules.Need, u *dispatch.GPUUse) (code cluster.ReasonCode, short int64, what string) {
	switch {
	case u.Shares > 0 && g.Unshared != "" && !x.job.Spec.Exclusive:
		return cluster.ReasonSharing, x.longest(g), "is taken, and " + g.Unshared
	case nd.Way == rules.WayWhole && u.Shares > 0:
		return cluster.ReasonExclusive, x.longest(g), "in use, but needed exclusively"
	case u.Exclusive:
		return cluster.ReasonSharing, x.longest(g), "in exclusive use"
	case u.FreeShares() < 1 || u.Shares >= max(1, x.pol.MaxShares):
		return cluster.ReasonGPUSlots, x.longest(g), "as many jobs as may share it"
	case nd.Mem > u.FreeMiB():
		return cluster.ReasonGPUMem, nd.Mem - u.FreeMiB(), fmt.Sprintf("%s free, needs %s", cluster.MemText(u.FreeMiB()), cluster.MemText(nd.Mem))
	case nd.Milli > u.FreeMilli():
		return cluster.ReasonGPUCompute, nd.Milli - u.FreeMilli(), fmt.Sprintf("%s of its compute free, needs %s", say.Percent(u.FreeMilli()), say.Percent(nd.Milli))
	}
	for _, j := range x.on[g.ID] {
		if rules.Overran(j, int64(x.snap.Now), u.Shares, &x.pol) {
			return cluster.ReasonSharing, x.longest(g), rules.OverranWords(j, int64(x.snap.Now), &x.pol)
		}
	}
	if v, s := x.judge(g, nd); v.Against() {
		return cluster.ReasonSharing, x.longest(g), v.Words(s, x.pol.MaxSlowdownMilli)
	}
	return "", 0, ""
}

// judge returns what speaks against the job joining those on a GPU.
func (x *explainer) judge(g *cluster.GPU, nd *rules.Need) (company.Verdict, *dispatch.Sharing) {
	know := x.snap.Interference
	s := know.SharingOn(g)
	if nd.Way != rules.WayShare || s == nil && g.Scope == cluster.ScopeAnyone {
		return company.Verdict{}, nil
	}
	var on []company.Sharer
	for _, j := range x.on[g.ID] {
		for _, gs := range j.Live().HeldGPUs() {
			if gs.GPU == g.ID {
				nature := company.NatureOf(know, s, j.Spec.Signature, nil)
				on = company.Insert(on, company.SharerOf(j, j.ID, cluster.BusyMilli(j.Spec, gs.Share, &j.Live().Estimate), &nature))
			}
		}
	}
	if v := company.Strangers(g, on, &x.job.Owner); v.Strange != nil {
		return v, s
	}
	nature := company.NatureOf(know, s, x.job.Spec.Signature, nil)
	return company.Judge(know, s, on, company.SharerOf(x.job, 0, nd.Busy, &nature), x.pol.MaxSlowdownMilli), s
}

// vetoes tallies the GPUs of a node that could never serve the job, and
// counts the others.
func (x *explainer) vetoes(n *cluster.Node) (others int) {
	if x.job.Spec.Node != "" && x.job.Spec.Node != n.ID {
		return 0
	}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		nd, e := x.need(x.job, g)
		if nd.Way != rules.WayNone {
			others++
			continue
		}
		r := rules.VetoReason(x.job, g, e, &nd, &x.pol)
		if nd.Why == rules.VetoObserved || nd.Why == rules.VetoTight {
			r = cluster.Reason{Code: cluster.ReasonNeverFits, Detail: x.sparing(x.job).Words(nd.Why, g, e)}
		}
		x.tallyOn(g.Type, r.Code, 1, -g.SellableMiB, func() string { return cardName(n, g) + ": " + r.Detail })
	}
	return others
}

func cardName(n *cluster.Node, g *cluster.GPU) string {
	return fmt.Sprintf("GPU %d of %s (%s)", g.Index, n.ID, g.Type)
}

// company says which jobs run on a GPU and when the first of them ends.
func (x *explainer) company(g *cluster.GPU) string {
	on := x.on[g.ID]
	if len(on) == 0 {
		return ""
	}
	next, how, endless := int64(rules.Forever), "", 0
	for _, j := range on {
		if j.Spec.Service != nil && j.Spec.TimeLimit == 0 {
			endless++
			continue
		}
		end, _ := rules.EndsAt(j, j.Live(), int64(x.snap.Now), &x.pol)
		if end >= next {
			continue
		}
		next, how = end, ""
		if rules.Assumed(j, j.Live()) {
			how = " (not known: " + strings.TrimPrefix(say.About(x.pol.AssumedDuration.Microseconds()), "~") + " assumed)"
		}
	}
	there := "; " + say.Jobs(len(on)) + " there, "
	switch {
	case endless == len(on):
		return there + "of a service: until somebody ends it"
	case len(on) == 1:
		there += "it ends in "
	default:
		there += "the next ends in "
	}
	return there + say.About(next-int64(x.snap.Now)) + how
}

// longest returns how long the last of those on a GPU is expected to stay.
func (x *explainer) longest(g *cluster.GPU) int64 {
	last := int64(0)
	for _, j := range x.on[g.ID] {
		end, _ := rules.EndsAt(j, j.Live(), int64(x.snap.Now), &x.pol)
		last = max(last, end-int64(x.snap.Now))
	}
	return last
}

// queue says where the job is in its queue.
func (x *explainer) queue() {
	if x.job.Queue == "" {
		return
	}
	q := x.snap.Queues[x.job.Queue]
	at := slices.IndexFunc(q, func(w dispatch.Waiter) bool { return w.Job == x.job.ID })
	if at < 0 {
		return
	}
	where := string(x.job.Queue)
	for _, n := range x.snap.Nodes {
		if g := n.GPU(x.job.Queue); g != nil {
			where = fmt.Sprintf("GPU %d of %s", g.Index, n.ID)
		}
	}
	code := cluster.ReasonQueueOrder
	if at == 0 {
		code = cluster.ReasonResources
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s in the queue of %s", say.Ordinal(at+1), where) // the forecast says when it starts
	x.tally(code, 1, math.MinInt64, b.String)
}

// Passes are the functions of passes that explain needs.
type Passes struct {
	// Schedule runs one.
	Schedule func(*dispatch.Snapshot, rules.Policy) dispatch.Plan
	// Before finds out which job holds the nodes on which a job would start if it
	// waited alone, by a pass over all waiting jobs: the one they are reserved for,
	// or that starts there; 0 if the job starts itself.
	Before func(snap *dispatch.Snapshot, job *cluster.Job, alone *dispatch.Plan, pol rules.Policy) (before cluster.JobID, kept bool)
	// Kept runs a pass over all waiting jobs, and returns for which job each GPU is
	// kept from the given one, 0 for none or where the job starts.
	Kept func(snap *dispatch.Snapshot, job *cluster.Job, pol rules.Policy) func(cluster.GPUID) cluster.JobID
}
