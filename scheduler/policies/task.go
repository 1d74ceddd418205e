package policies

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// need is what a job takes of each card of one class.
type need struct {
	share cluster.Share
	est   cluster.Estimate
	dur   int64 // microseconds, at least 1
	ok    bool  // it can ever lie there
}

// task is one waiting job in a pass.
type task struct {
	facts
	job   *cluster.Job
	needs []need // by class
	gone  bool   // started in this pass
	// never says why no class at all can run it.
	never cluster.Reason
	cpu   int64
	mem   int64
	whole bool // it wants its nodes for itself
	// What it was made of, and its key in an order that does not change.
	revision uint64
	terms    cluster.Terms
	at       key
	listed   uint64 // the memory's plan in which it last waited
}

// facts are what orders go by, of a waiting or of a running job. Spans are
// microseconds, service is microseconds of one GPU.
type facts struct {
	id   cluster.JobID
	uid  cluster.UID
	gpus int // on each of its nodes
	// nodes is how many it has, 0 stands for one.
	nodes int
	// since is when it last began to wait, submitted when it first came.
	since, submitted int64
	dur              int64 // of a whole run on its fastest type
	left             int64 // of it still to do
	attained         int64 // GPU time received over all attempts
	ran              int64 // wall time received over all attempts
	size             int64 // least dominant fraction of a card, thousandths
	deadline         int64 // 0 is none
	weight           int64 // thousandths
	preemptible      bool
	attempts         []cluster.Attempt
}

// factsOf collects them; dur is the length of a whole run.
func factsOf(j *cluster.Job, terms cluster.Terms, dur, now int64) facts {
	f := facts{
		id: j.ID, uid: j.Owner.UID, gpus: j.Spec.GPUs, nodes: j.Spec.NodeCount(), since: int64(j.Eligible), submitted: int64(j.Submitted), dur: dur,
		deadline: int64(terms.Deadline), weight: terms.WeightMilli, preemptible: terms.Preemptible, attempts: j.Attempts,
	}
	if f.weight <= 0 {
		f.weight = 1000
	}
	for i := range j.Attempts {
		a := &j.Attempts[i]
		if a.Started == 0 {
			continue
		}
		end := int64(a.Ended)
		if end == 0 {
			end = now
		}
		f.ran += max(0, end-int64(a.Started))
	}
	f.attained = f.ran * int64(f.width())
	f.left = dur
	if f.preemptible { // it goes on from where it was
		f.left = max(1, dur-f.ran)
	} else if a := j.Live(); a != nil && a.Started > 0 {
		f.left = max(1, dur-max(0, now-int64(a.Started)))
	}
	return f
}

// gpuTime is what is left to do times the GPUs it takes.
func (f *facts) gpuTime() int64 { return f.left * int64(f.width()) }

// cards is how many GPUs it takes on all of its nodes.
func (f *facts) cards() int { return f.gpus * max(1, f.nodes) }

// width is what its time counts for: its cards, one for a job without any.
func (f *facts) width() int { return max(1, f.cards()) }

// durationOf is how long a job is expected to hold its berth, in
// microseconds: as estimated, else as declared, else its limit, else as the
// site assumes, and never beyond its limit.
func durationOf(j *cluster.Job, e *cluster.Estimate, pol *scheduler.Policy) int64 {
	d := e.Duration
	if d <= 0 {
		d = j.Spec.Duration
	}
	if limit := j.Spec.TimeLimit; limit > 0 && (d <= 0 || d > limit) {
		d = limit
	}
	if d <= 0 {
		d = pol.AssumedDuration
	}
	return max(1, d.Microseconds())
}

// newTask works out what j takes on each class of cards.
func (p *pass) newTask(j *cluster.Job) *task {
	t := &task{job: j, needs: make([]need, len(p.f.classes)), revision: j.Revision, terms: p.snap.Terms[j.ID], whole: j.Spec.WholeNodes()}
	t.cpu, t.mem = rules.HostOf(j, &p.opt.Base)
	dur, size := int64(forever), int64(whole)
	if j.Spec.GPUs == 0 {
		e, _ := cluster.EstimateFor(j.Estimates, cluster.CPUType)
		dur, size = durationOf(j, &e, &p.opt.Base), 0
	}
	roomy := p.roomyFor(j)
	for c := range p.f.classes {
		k, n := &p.f.classes[c], &t.needs[c]
		if j.Spec.GPUs == 0 {
			break
		}
		var why cluster.Reason
		n.share, n.est, why = rules.ShareOn(j, k.rep, p.opt.Base)
		if why.Code != "" {
			if t.never.Code == "" || t.never.Code == cluster.ReasonGPUType {
				t.never = why
			}
			continue
		}
		if roomy && k.sellable < j.MinGPUMemMiB {
			continue // it ran out of memory before, and there are larger cards
		}
		n.dur = durationOf(j, &n.est, &p.opt.Base)
		if n.ok = p.addMargin(j, n, k); !n.ok {
			t.never = cluster.Reason{Code: cluster.ReasonNeverFits, Detail: fmt.Sprintf("predicted %d MiB and a margin are more than %s sells, %d", n.est.GPUMemMiB, k.gpuType, k.sellable)}
			continue
		}
		dur = min(dur, n.dur)
		size = min(size, dominant(n.share, k.sellable))
	}
	if dur == forever {
		dur = durationOf(j, &cluster.Estimate{}, &p.opt.Base)
	}
	t.facts = factsOf(j, t.terms, dur, p.now)
	t.size = size
	return t
}

// addMargin raises a predicted memory by the placement's margin. It reports
// false when the card does not sell so much.
func (p *pass) addMargin(j *cluster.Job, n *need, k *class) bool {
	if p.marginMilli == 0 || j.Spec.GPUMemMiB > 0 || n.est.ConfidenceMilli < p.opt.Base.MinConfidenceMilli {
		return true
	}
	want := n.est.GPUMemMiB + (n.est.GPUMemMiB*p.marginMilli+999)/1000
	if !n.share.Exclusive {
		n.share.MemMiB = max(n.share.MemMiB, want)
	}
	return want <= k.sellable
}

// roomyFor reports whether some class has the memory that an earlier attempt
// of j ran out of.
func (p *pass) roomyFor(j *cluster.Job) bool {
	if j.MinGPUMemMiB <= 0 {
		return false
	}
	for c := range p.f.classes {
		k := &p.f.classes[c]
		if k.sellable < j.MinGPUMemMiB {
			continue
		}
		if _, _, why := rules.ShareOn(j, k.rep, p.opt.Base); why.Code == "" {
			return true
		}
	}
	return false
}

// dominant is the larger of a share's fractions of memory and compute.
func dominant(s cluster.Share, sellable int64) int64 {
	if s.Exclusive || sellable <= 0 {
		return whole
	}
	return min(whole, max(s.Milli, s.MemMiB*whole/sellable))
}
