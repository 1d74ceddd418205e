package cluster

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// WholeGPU is the compute of one whole GPU, in thousandths.
const WholeGPU = 1000

// Share is a slice of one GPU. An exclusive share is the whole card, and then
// MemMiB is its sellable memory and Milli is WholeGPU.
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

// Berth is where one attempt lies: a node, its shares there, and the host
// resources that go with them. GPUs is empty for a job that needs none, and
// sorted by id otherwise.
type Berth struct {
	Node     NodeID
	GPUs     []GPUShare
	CPUMilli int64
	MemMiB   int64
}

// ResizeMode is whether, and how soon, what a running job holds of GPUs is cut to what
// it uses.
type ResizeMode string

// The modes of a partition. ResizeDefault is that of one that says nothing: conservative
// for jobs with a checkpoint hook, to whom an attempt that is lost costs little, and off
// for others. What ResizeConservative takes from a job it is sure not to need;
// ResizeEager is for jobs that start again cheaply.
const (
	ResizeDefault      ResizeMode = ""
	ResizeOff          ResizeMode = "off"
	ResizeConservative ResizeMode = "conservative"
	ResizeEager        ResizeMode = "eager"
)

// ParseResizeMode reads default, off, conservative or eager; "" is default. The error is
// an *Error of CodeInvalid.
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

// ResizeOf is how what a job of p holds of GPUs follows what it uses, ResizeOff,
// ResizeConservative or ResizeEager; p is nil for a job of no partition.
func ResizeOf(p *Partition, s *Spec) ResizeMode {
	switch {
	case p != nil && p.Resize != ResizeDefault:
		return p.Resize
	case s.Checkpoint.Set():
		return ResizeConservative
	}
	return ResizeOff
}

// ResizeRule says when the peak of a job's GPU memory is steady, and what is left
// to it then.
type ResizeRule struct {
	// Steady is for how long the peak has not risen, Part the part of the time that
	// the job was predicted to take, in thousandths: the longer of both counts.
	Steady time.Duration
	Part   int64
	// Margin is what is left above the peak, in thousandths of it, and MarginMiB in
	// addition.
	Margin, MarginMiB int64
	// Declared are cut, too: jobs that said how much memory they take.
	Declared bool
}

// Rule is that of a mode which ResizeOf returns. Jobs that were cut before it was turned
// off grow by the conservative one.
func (m ResizeMode) Rule() ResizeRule {
	if m == ResizeEager {
		return ResizeRule{Steady: 20 * time.Second, Part: 20, Margin: 100, MarginMiB: 256, Declared: true}
	}
	return ResizeRule{Steady: 5 * time.Minute, Part: 100, Margin: 200, MarginMiB: 512}
}

// Wait is how long the peak of a job that is predicted to run for d must be steady.
func (r ResizeRule) Wait(d time.Duration) time.Duration {
	return max(r.Steady, d/1000*time.Duration(r.Part))
}

// resizeLeastPart is the least that a cut must free to be worth one, as a part of what there
// is.
const resizeLeastPart = 20

// growMilli is the part of a share, in thousandths, above which it grows again.
const growMilli = 920

// Shares are what an attempt with shares of have, of cards that sell sellable MiB
// each, keeps or gets when the most that it held of one is peak MiB and it used
// milli thousandths of each: nil when that is what it has. was is what it had before
// it was cut, nil when it was not. A share grows to no more than that.
//
// Compute is cut only where a whole GPU was given because nothing was known; a
// share's is what others were placed by.
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

// ResizeMark is what became of the shares of an attempt that were cut to what it
// uses.
type ResizeMark struct {
	// At is when they were cut, Cuts how often.
	At   Time
	Cuts uint32
	// Was are the shares that it was granted at its start, empty once it has them
	// again.
	Was []GPUShare
}

// Granted is how much memory the attempt may have of its GPU i: its share, or what it
// was granted at its start, where that was cut.
func (a *Attempt) Granted(i int) int64 {
	if m := a.Resize; m != nil && i < len(m.Was) {
		return m.Was[i].Share.MemMiB
	}
	return a.Berth.GPUs[i].Share.MemMiB
}

// WasCut reports whether the attempt has less of its GPUs than it was granted, since
// it was cut to what it used.
func (a *Attempt) WasCut() bool { return a.Resize != nil && len(a.Resize.Was) > 0 }

// BeforeCut are the shares that the attempt had before they were cut to what it used,
// whether to make room or since it stood idle; nil where they were not.
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

// MayResize reports whether the shares of the job's live attempt may be cut: it lies
// on one node, the job allows it and does not need a whole GPU, and it was not cut
// before, now or in an attempt that then ran out of memory.
func (j *Job) MayResize() bool {
	a := j.Live()
	if a == nil || a.State != JobRunning || a.Gang != nil || len(a.Berth.GPUs) == 0 || j.Spec.NoResize || j.Spec.Exclusive || j.NeedWhole ||
		a.Preempt != nil || j.Cancel != nil || a.Resize != nil || a.Idle != nil && len(a.Idle.Was) > 0 {
		return false
	}
	return !j.OutgrewCut()
}

// GPUTime is time of whole GPUs in microseconds: a time.Duration holds but 292
// years of one.
type GPUTime int64

// Hours is t in GPU-hours.
func (t GPUTime) Hours() float64 { return float64(t) / 3.6e9 }

// GPUTimeOf is the GPU time of one GPU for d.
func GPUTimeOf(d time.Duration) GPUTime { return GPUTime(d.Microseconds()) }

// ShareMilli is how much of a GPU a share takes, in thousandths of the whole
// card: of memory and compute whichever is the larger part. sellable is the
// card's sellable memory in MiB; where it is not known, 0, compute alone counts.
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

// HeldMilli is how much of GPUs the berths take in all, in thousandths of whole
// ones. sellable returns the sellable memory of a card in MiB, 0 if not known.
func HeldMilli(gpus []GPUShare, sellable func(GPUID) int64) int64 {
	n := int64(0)
	for _, g := range gpus {
		n += ShareMilli(g.Share, sellable(g.GPU))
	}
	return n
}

// Charge is what an attempt costs who submitted it. Whoever shares a GPU pays
// for the share alone.
type Charge struct {
	// GPU is GPU time: the part of a GPU that was held × the time that it ran, a
	// whole GPU counting as one.
	GPU time.Duration
	// Core is core time, of attempts without GPUs only: with a GPU its cores go.
	Core time.Duration
}

// Add returns the sum of both.
func (c Charge) Add(o Charge) Charge { return Charge{GPU: c.GPU + o.GPU, Core: c.Core + o.Core} }

// GPUSeconds is the GPU time in seconds of a whole GPU.
func (c Charge) GPUSeconds() float64 { return c.GPU.Seconds() }

// CoreSeconds is the core time in seconds of one core.
func (c Charge) CoreSeconds() float64 { return c.Core.Seconds() }

// Rate is what an attempt costs in each unit of time: thousandths of a GPU and,
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
	// It was placed before the state kept what it took: memory cannot be told.
	return HeldMilli(a.AllGPUs(), func(GPUID) int64 { return 0 }), 0
}

// HoldsMilli is what of GPUs the attempt holds now, in thousandths: less than it is charged
// by for nodes that left it.
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
	return milli / int64(a.Nodes()) * live // all have as much
}

// Ran is how long the attempt ran as of now, on several nodes the mean of its
// parts: from its start, not from its placement, to its end. It is 0 for one
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

// Charge is what the attempt costs as of now, and for good once it ended. It is
// a function of what is stored, in whole microseconds of GPU and of core time,
// so that every replica and every report comes to the same.
func (a *Attempt) Charge(now Time) Charge {
	t := a.Ran(now)
	gpu, core := a.Rate()
	return Charge{GPU: TimesMilli(t, gpu), Core: TimesMilli(t, core)}
}

// TimesMilli is t × milli / 1000 in whole microseconds, and at most what can be
// told: 146 years of one GPU.
func TimesMilli(t time.Duration, milli int64) time.Duration {
	us := t.Microseconds()
	if milli > 0 && us/1000 > math.MaxInt64/2000/milli {
		return math.MaxInt64 / 2
	}
	return time.Duration(us/1000*milli+us%1000*milli/1000) * time.Microsecond
}

// Charge is what all attempts of the job cost together as of now.
func (j *Job) Charge(now Time) Charge {
	var c Charge
	for i := range j.Attempts {
		c = c.Add(j.Attempts[i].Charge(now))
	}
	return c
}
