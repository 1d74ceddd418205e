package cluster

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// WholeGPU is the compute of one whole GPU, in thousandths.
const WholeGPU = 1000

// Share is a slice of one GPU. An exclusive share is the whole GPU; its MemMiB is
// the GPU's sellable memory and its Milli is WholeGPU.
type Share struct {
	MemMiB    int64
	Milli     int64
	Exclusive bool
}

// GPUShare is a share of one particular GPU.
type GPUShare struct {
	GPU   GPUID
	Share Share
}

// Berth is the place of one attempt on one node: the node, the shares there, and
// the host resources that go with them. GPUs is sorted by id, and empty for a job
// that needs none.
type Berth struct {
	Node     NodeID
	GPUs     []GPUShare
	CPUMilli int64
	MemMiB   int64
}

// ResizeMode says whether, and how soon, the GPU shares of a running job are cut to
// what it uses.
type ResizeMode string

// The resize modes of a partition. ResizeDefault is that of a partition that sets
// none: conservative for jobs with a checkpoint hook, for which losing an attempt
// costs little, and off for others. ResizeConservative takes only what a job is
// sure not to need; ResizeEager is for jobs that are cheap to restart.
const (
	ResizeDefault      ResizeMode = ""
	ResizeOff          ResizeMode = "off"
	ResizeConservative ResizeMode = "conservative"
	ResizeEager        ResizeMode = "eager"
)

// ParseResizeMode parses default, off, conservative or eager; "" is default. The
// error is an *Error of CodeInvalid.
func ParseResizeMode(s string) (ResizeMode, error) {
	switch m := ResizeMode(s); m {
	case ResizeDefault, ResizeOff, ResizeConservative, ResizeEager:
		return m, nil
	case resizeDefault:
		return ResizeDefault, nil
	}
	return ResizeDefault, Errorf(CodeInvalid, "resize: %s is not known; want default, off, conservative or eager", QuoteShort(s))
}

// String implements fmt.Stringer.
func (m ResizeMode) String() string {
	if m == ResizeDefault {
		return resizeDefault
	}
	return string(m)
}

// resizeDefault is how ResizeDefault is written.
const resizeDefault = "default"

// ResizeOf returns the mode for the GPU shares of a job of p: ResizeOff,
// ResizeConservative or ResizeEager; p is nil for a job in no partition.
func ResizeOf(p *Partition, s *Spec) ResizeMode {
	switch {
	case p != nil && p.Resize != ResizeDefault:
		return p.Resize
	case s.Checkpoint.Set():
		return ResizeConservative
	}
	return ResizeOff
}

// ResizeRule says when a job's peak GPU memory counts as steady, and how much it
// then keeps.
type ResizeRule struct {
	// Steady is how long the peak must not have risen, Part the same as a fraction
	// of the job's predicted duration, in thousandths: the longer of both counts.
	Steady time.Duration
	Part   int64
	// Margin is what is kept above the peak, in thousandths of it, and MarginMiB in
	// addition.
	Margin, MarginMiB int64
	// Declared means that jobs with a declared memory are cut, too.
	Declared bool
}

// Rule returns the rule of a mode that ResizeOf returns. Jobs that were cut before
// resizing was turned off grow by the conservative rule.
func (m ResizeMode) Rule() ResizeRule {
	if m == ResizeEager {
		return ResizeRule{Steady: 20 * time.Second, Part: 20, Margin: 100, MarginMiB: 256, Declared: true}
	}
	return ResizeRule{Steady: 5 * time.Minute, Part: 100, Margin: 200, MarginMiB: 512}
}

// Wait returns how long the peak of a job with predicted duration d must be steady.
func (r ResizeRule) Wait(d time.Duration) time.Duration {
	return max(r.Steady, d/1000*time.Duration(r.Part))
}

// resizeLeastPart is the smallest worthwhile cut, as a fraction (1/n) of the
// current share.
const resizeLeastPart = 20

// growMilli is the use of a share, in thousandths, above which it grows again.
const growMilli = 920

// Shares returns the new shares of an attempt that has the shares have on GPUs that
// sell sellable MiB each, given a peak of peak MiB on any one of them and a use of
// milli thousandths of each; nil if they stay the same. was holds its shares before
// it was cut, nil if it was not; a share grows to no more than that.
//
// Compute is cut only where a whole GPU was given because nothing was known; the
// compute of a partial share is what others were placed by.
func (r ResizeRule) Shares(have, was []GPUShare, sellable []int64, peak, milli int64) []GPUShare {
	want := peak + peak*r.Margin/1000 + r.MarginMiB
	out, changed := slices.Clone(have), false
	for i := range out {
		s := &out[i].Share
		most := s.MemMiB
		if s.Exclusive {
			most = sellable[i]
		}
		switch {
		case len(was) > 0 && peak*1000 > s.MemMiB*growMilli:
			s.MemMiB = min(want, was[i].Share.MemMiB)
			changed = changed || s.MemMiB > most
		case len(was) == 0 && want <= most-max(most/resizeLeastPart, 1):
			if s.Exclusive {
				*s = Share{Milli: min(WholeGPU, milli+milli/4+50)}
			}
			s.MemMiB, changed = want, true
		}
	}
	if !changed {
		return nil
	}
	return out
}

// ResizeMark records how the shares of an attempt were cut to what it uses.
type ResizeMark struct {
	// At is when they were cut, Cuts how often.
	At   Time
	Cuts uint32
	// Was holds the shares granted at its start, empty once it has them again.
	Was []GPUShare
}

// Granted returns how much memory the attempt may have of its GPU i: its share, or
// if that was cut, what it was granted at its start.
func (a *Attempt) Granted(i int) int64 {
	if m := a.Resize; m != nil && i < len(m.Was) {
		return m.Was[i].Share.MemMiB
	}
	return a.Berth.GPUs[i].Share.MemMiB
}

// WasCut reports whether the attempt has less of its GPUs than it was granted
// because it was cut to what it used.
func (a *Attempt) WasCut() bool { return a.Resize != nil && len(a.Resize.Was) > 0 }

// BeforeCut returns the shares that the attempt had before they were cut to what it
// used, whether to make room or because it was idle; nil if they were not.
func (a *Attempt) BeforeCut() []GPUShare {
	switch {
	case a.WasCut():
		return a.Resize.Was
	case a.Idle != nil && len(a.Idle.Was) > 0:
		return a.Idle.Was
	}
	return nil
}

// OutgrewCut reports whether the job ran out of GPU memory in an attempt whose shares
// were ever cut.
func (j *Job) OutgrewCut() bool {
	return slices.ContainsFunc(j.Attempts, func(o Attempt) bool { return o.Usage.GPUOOM && (o.Resize != nil || o.BeforeCut() != nil) })
}

// MayResize reports whether the shares of the job's live attempt may be cut: it
// runs on one node, the job allows it and does not need a whole GPU, and it was not
// cut before, either now or in an attempt that then ran out of memory.
func (j *Job) MayResize() bool {
	a := j.Live()
	if a == nil || a.State != JobRunning || a.Gang != nil || len(a.Berth.GPUs) == 0 || j.Spec.NoResize || j.Spec.Exclusive || j.NeedWhole ||
		a.Preempt != nil || j.Cancel != nil || a.Resize != nil || a.Idle != nil && len(a.Idle.Was) > 0 {
		return false
	}
	return !j.OutgrewCut()
}

// GPUTime is whole-GPU time in microseconds: a time.Duration holds only 292 years
// of one GPU.
type GPUTime int64

// Hours returns t in GPU-hours.
func (t GPUTime) Hours() float64 { return float64(t) / 3.6e9 }

// GPUTimeOf returns the GPU time of one GPU for d.
func GPUTimeOf(d time.Duration) GPUTime { return GPUTime(d.Microseconds()) }

// ShareMilli returns how much of a GPU a share takes, in thousandths of the whole
// GPU: the larger of its fractions of memory and compute. sellable is the GPU's
// sellable memory in MiB; if it is unknown, 0, only compute counts.
func ShareMilli(s Share, sellable int64) int64 {
	if s.Exclusive {
		return WholeGPU
	}
	milli := s.Milli
	if sellable > 0 && s.MemMiB > 0 {
		milli = max(milli, (min(s.MemMiB, sellable)*WholeGPU+sellable-1)/sellable)
	}
	return min(max(milli, 1), WholeGPU)
}

// HeldMilli returns the total of GPUs that the shares take, in thousandths of whole
// ones. sellable returns the sellable memory of a GPU in MiB, 0 if unknown.
func HeldMilli(gpus []GPUShare, sellable func(GPUID) int64) int64 {
	n := int64(0)
	for _, g := range gpus {
		n += ShareMilli(g.Share, sellable(g.GPU))
	}
	return n
}

// Charge is what an attempt costs its submitter. A job that shares a GPU pays for
// its share only.
type Charge struct {
	// GPU is GPU time: the fraction of a GPU that was held × the running time, a
	// whole GPU counting as one.
	GPU time.Duration
	// Core is core time, of attempts without GPUs only: with a GPU, cores are
	// included.
	Core time.Duration
}

// Add returns the sum of both.
func (c Charge) Add(o Charge) Charge { return Charge{GPU: c.GPU + o.GPU, Core: c.Core + o.Core} }

// Rate returns the cost of an attempt per unit of time: thousandths of a GPU and,
// for one without GPUs, thousandths of a core.
func (a *Attempt) Rate() (gpuMilli, coreMilli int64) {
	if len(a.Berth.GPUs) == 0 {
		for _, b := range a.Berths() {
			coreMilli += b.CPUMilli
		}
		return 0, coreMilli
	}
	if a.GPUMilli > 0 {
		return a.GPUMilli, 0
	}
	// It was placed before the state recorded GPUMilli: its memory is unknown.
	return HeldMilli(a.AllGPUs(), func(GPUID) int64 { return 0 }), 0
}

// HoldsMilli returns the GPUs that the attempt holds now, in thousandths. It is
// less than the attempt is charged for if nodes left it.
func (a *Attempt) HoldsMilli() int64 {
	milli, _ := a.Rate()
	if !a.Gang.Changed() {
		return milli
	}
	live := int64(0)
	for rank := range a.Nodes() {
		if a.PartLive(rank) {
			live++
		}
	}
	return milli / int64(a.Nodes()) * live // all nodes have the same
}

// Ran returns how long the attempt has run as of now, from its start, not its
// placement, to its end; on several nodes the mean of its parts. It is 0 for one
// that never started.
func (a *Attempt) Ran(now Time) time.Duration {
	if a.Gang == nil {
		return ran(a.Started, a.Ended, now)
	}
	sum := time.Duration(0)
	for i := range a.Gang.Parts {
		p := &a.Gang.Parts[i]
		end := cmp.Or(p.Ended, a.Ended)
		sum += ran(p.Started, end, now)
	}
	return (sum / time.Duration(len(a.Gang.Parts))).Truncate(time.Microsecond)
}

func ran(started, ended, now Time) time.Duration {
	switch {
	case started == 0:
		return 0
	case ended == 0:
		ended = now
	}
	return max(0, ended.Sub(started))
}

// Charge returns the cost of the attempt as of now, which is final once it ended.
// It depends on stored values only, in whole microseconds of GPU and of core time,
// so that every replica and every report agree.
func (a *Attempt) Charge(now Time) Charge {
	t := a.Ran(now)
	gpu, core := a.Rate()
	return Charge{GPU: TimesMilli(t, gpu), Core: TimesMilli(t, core)}
}

// TimesMilli returns t × milli
// 1000 in whole microseconds, capped at what fits: 146 years of one GPU.
func TimesMilli(t time.Duration, milli int64) time.Duration {
	us := t.Microseconds()
	if milli > 0 && us/1000 > math.MaxInt64/2000/milli {
		return math.MaxInt64 / 2
	}
	return time.Duration(us/1000*milli+us%1000*milli/1000) * time.Microsecond
}

// Charge returns the combined cost of all attempts of the job as of now.
func (j *Job) Charge(now Time) Charge {
	var c Charge
	for i := range j.Attempts {
		c = c.Add(j.Attempts[i].Charge(now))
	}
	return c
}
