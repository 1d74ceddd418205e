package cluster

import (
	"math"
	"time"
)

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
		end := p.Ended
		if end == 0 {
			end = a.Ended
		}
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
