package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/berth-scheduler/berth/model/gpuspec"
)

// What a user's own runs say about the margin. The weights' margins hold for models
// of all users; one user's models are alike, and their errors are less spread, and
// centred elsewhere. Given enough jobs of one kind that are similar in size to a
// job, and that the weights were not trained on, the next one's error is assumed to
// be distributed like theirs.
const (
	// ownLeast is how many jobs that takes, ownMost how many are kept per kind.
	ownLeast = 8
	ownMost  = 64
	// ownRange is the factor within which the size of a job may differ from theirs.
	ownRange = 4
	// ownPart is the part of the weights' margin that is kept in any case: users
	// begin something new.
	ownPart = 0.2
)

// ownKind is the kind of runs for which a user's runs have earned a margin.
type ownKind struct{ user, kind string }

// ownRun is the newest run of one job.
type ownRun struct {
	signature, gpuType, driver string
	seq                        uint64
	peakMiB                    int64 // the largest of its runs
	features                   *Features
}

// kindOf returns the kind of runs whose memory errors are alike.
func kindOf(f *Features, spec *gpuspec.Spec) string {
	return fmt.Sprintf("%s/%t/%s", f.Source, f.Convs > 0, GroupKey(Memory, f, spec))
}

// noteOwn keeps a run among those of its user; runs come newest first. One that a
// limit ended counts with what it was seen to need.
func (h *History) noteOwn(s *Sample) {
	if s.User == "" || s.PeakMiB <= 0 || !s.Features.Known() {
		return
	}
	spec, known := gpuspec.Lookup(s.GPUType)
	if !known {
		return
	}
	k := ownKind{s.User, kindOf(&s.Features, &spec)}
	runs := h.own[k]
	if i := slices.IndexFunc(runs, func(r ownRun) bool { return r.signature == s.Signature && r.gpuType == s.GPUType }); i >= 0 {
		runs[i].peakMiB = max(runs[i].peakMiB, s.PeakMiB)
	} else if len(runs) < ownMost && !s.Censored {
		h.own[k] = append(runs, ownRun{s.Signature, s.GPUType, s.Driver, s.Seq, s.PeakMiB, &s.Features})
	}
}

// ownErrors are the errors of one kind under the weights in use.
type ownErrors struct {
	once sync.Once
	runs []ownError
}

// ownError is the ratio of a run's use to its estimate, as logarithms.
type ownError struct{ size, miss float64 }

// ownMargin returns the logarithm of the margin that a user's runs have earned for
// a job with estimate value; ok is false while they are too few.
func (p *Predictor) ownMargin(user string, f *Features, spec *gpuspec.Spec, value float64) (margin float64, ok bool) {
	if user == "" || p.h == nil || value <= 0 {
		return 0, false
	}
	k := ownKind{user, kindOf(f, spec)}
	if len(p.h.own[k]) < ownLeast {
		return 0, false
	}
	found, _ := p.own.LoadOrStore(k, &ownErrors{})
	errs := found.(*ownErrors)
	errs.once.Do(func() { errs.runs = p.ownErrors(k) })
	var near []float64
	for _, e := range errs.runs {
		if d := e.size - math.Log(value); max(d, -d) < math.Log(ownRange) {
			near = append(near, e.miss)
		}
	}
	if len(near) < ownLeast {
		return 0, false
	}
	return upper(near), true
}

// ownErrors returns the errors of a user's runs of a kind: all if such runs were
// never measured before, else those newer than what the weights were trained on.
func (p *Predictor) ownErrors(k ownKind) (out []ownError) {
	l := &p.w.Learned[Memory]
	var sc scratch
	for _, r := range p.h.own[k] {
		spec, _ := p.spec(TypeInfo{Name: r.gpuType})
		if r.seq <= p.w.TrainedSeq && has(l.Kinds, KindHash(GroupKey(Memory, r.features, &spec))) {
			continue
		}
		sc = scratch{}
		if g := p.memory(r.features, &spec, r.driver, &sc); g.value > 0 {
			out = append(out, ownError{math.Log(g.value), math.Log(float64(r.peakMiB) / g.value)})
		}
	}
	return out
}

// siteMost is how many of a cluster's newest jobs are checked against the weights,
// siteLeast how many it takes, and siteVoices the minimum number of users that they
// come from in equal parts, if there are as many: no single user narrows the
// others' margins.
const (
	siteLeast  = 8
	siteMost   = 64
	siteVoices = 4
)

// familiar reports whether runs of this cluster are like those that the weights
// were learned from: of its newest jobs, of all users and kinds, no more than one
// in twenty took more memory than its own margin allows.
func (p *Predictor) familiar() bool {
	p.site.Do(func() {
		if p.h == nil {
			return
		}
		runs := p.h.newestOfAll()
		above, l := 0, &p.w.Learned[Memory]
		for _, r := range runs {
			spec, _ := p.spec(TypeInfo{Name: r.gpuType})
			var sc scratch
			if g := l.estimate(Memory, p.splits[Memory], &p.w, r.features, &spec, &sc); float64(r.peakMiB) > g.p95 {
				above++
			}
		}
		p.known = len(runs) >= siteLeast && 20*above <= len(runs)
	})
	return p.known
}

// newestOfAll returns the newest runs of a cluster's users, newest first.
func (h *History) newestOfAll() []ownRun {
	type userRun struct {
		ownRun
		user string
	}
	var all []userRun
	users := map[string]int{}
	for k, of := range h.own {
		users[k.user] = 0
		for _, r := range of {
			all = append(all, userRun{r, k.user})
		}
	}
	slices.SortFunc(all, func(a, b userRun) int {
		return cmp.Or(cmp.Compare(b.seq, a.seq), cmp.Compare(a.user, b.user), cmp.Compare(a.signature, b.signature))
	})
	each := siteMost / max(1, min(siteVoices, len(users)))
	var runs []ownRun
	for i := range all {
		if r := &all[i]; users[r.user] < each && len(runs) < siteMost {
			users[r.user]++
			runs = append(runs, r.ownRun)
		}
	}
	return runs
}

// upper returns the bound under which nineteen in twenty of the next errors stay,
// judging by those seen: the prediction interval of a normal distribution, and
// while they are few never less than the largest of them; for many it is their own
// quantile, plus a little.
func upper(errs []float64) float64 {
	slices.Sort(errs)
	n := len(errs)
	if n >= 40 {
		return errs[min(n-1, int(math.Ceil(0.96*float64(n+1)))-1)]
	}
	mean, sum := 0.0, 0.0
	for _, e := range errs {
		mean += e / float64(n)
	}
	for _, e := range errs {
		sum += float64((e - mean) * (e - mean))
	}
	// Student's t for nineteen in twenty, by Cornish and Fisher's expansion.
	// (z³+z)/4 and (5z⁵+16z³+3z)/96 of the normal quantile z.
	nu := float64(n - 1)
	t := 1.6449 + 1.5240/nu + 1.4204/(nu*nu)
	return max(mean+float64(t*math.Sqrt(sum/nu*(1+1/float64(n)))), errs[n-1])
}
