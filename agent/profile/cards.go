package profile

import (
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// cardTrack is what is kept of one attempt on one GPU. Sums are of a figure times milliseconds,
// next to the milliseconds in which it was known.
type cardTrack struct {
	UUID     string    `json:"uuid"`
	At       time.Time `json:"at"`
	PeakMiB  int64     `json:"peak_mib"`
	Mem      integral  `json:"mem"`
	Util     integral  `json:"util"`
	Activity integral  `json:"activity"`
	EnergyMJ float64   `json:"energy_mj"`
}

// integral is a figure over time. A billion MiB for a year fits.
type integral struct {
	Sum int64 `json:"sum"`
	Ms  int64 `json:"ms"`
}

func (i *integral) add(v, ms int64) {
	if v != gpu.Unknown {
		i.Sum, i.Ms = i.Sum+v*ms, i.Ms+ms
	}
}

func (i integral) mean() int64 {
	if i.Ms == 0 {
		return 0
	}
	return (i.Sum + i.Ms/2) / i.Ms
}

// cardState is the last known state of a GPU.
type cardState struct {
	At               time.Time `json:"at"`
	PowerW, EnergyMJ int64
}

// perWeight is the time that counts once in the histogram.
const perWeight = 250 * time.Millisecond

// Observe takes a sample of the GPUs. It is meant to be registered with the agent's sampler.
func (r *Recorder) Observe(now time.Time, usage []gpu.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range usage {
		r.observe(now, &usage[i])
	}
	// An attempt has been sampled when one of its GPUs was read.
	for i := range usage {
		for _, t := range r.onCard[usage[i].UUID] {
			t.look(now, cardGap)
		}
	}
}

// presence is one attempt on a GPU in one sample.
type presence struct {
	card *cardTrack
	util int64 // Unknown when not known
}

func (r *Recorder) observe(now time.Time, u *gpu.Usage) {
	on := make([]presence, 0, 4)
	tracks, began := r.onCard[u.UUID], now
	for _, t := range tracks {
		if !now.After(t.Started) {
			continue // by a clock that was set back
		}
		mem, util, peak := usedBy(u, t.id, len(tracks) == 1)
		c := t.card(u.UUID)
		on = append(on, presence{c, util})
		if t.Started.Before(began) {
			began = t.Started
		}
		c.PeakMiB = max(c.PeakMiB, mem, peak)
		if d := now.Sub(c.At); d > 0 && d <= cardGap && !t.resumed {
			ms := d.Milliseconds()
			c.Mem.add(mem, ms)
			c.Util.add(util, ms)
			c.Activity.add(u.MemActivityMilli, ms)
			if util != gpu.Unknown {
				t.Util.add(util, max(1, int64((d+perWeight/2)/perWeight)))
			}
		}
		c.At = now
	}
	r.charge(now, u, on, began)
}

func (t *track) card(uuid string) *cardTrack {
	for _, c := range t.Cards {
		if c.UUID == uuid {
			return c
		}
	}
	return nil
}

// usedBy sums what the processes of an attempt use on a GPU. Where the driver does not report
// it, the usage of the whole GPU is attributed to an attempt that is alone there.
func usedBy(u *gpu.Usage, attempt string, alone bool) (mem, util, peak int64) {
	for _, p := range u.Processes {
		if p.Attempt != attempt {
			continue
		}
		peak = max(peak, p.PeakMiB)
		if p.PID == 0 {
			continue
		}
		mem, util = plus(mem, p.MemMiB), plus(util, p.UtilMilli)
	}
	if mem == gpu.Unknown && alone {
		mem = u.UsedMiB
	}
	if util == gpu.Unknown && alone {
		util = u.UtilMilli
	}
	return mem, min(util, 1000), peak
}

func plus(sum, v int64) int64 {
	if sum == gpu.Unknown || v == gpu.Unknown {
		return gpu.Unknown
	}
	return sum + v
}

// charge splits the energy that a GPU has used since the last sample among its attempts, by
// utilization, or evenly when none computes. GPUs without a counter are assumed to have drawn
// the mean of the power at both ends.
func (r *Recorder) charge(now time.Time, u *gpu.Usage, on []presence, began time.Time) {
	was, known := r.cards[u.UUID]
	r.cards[u.UUID] = cardState{At: now, PowerW: u.PowerW, EnergyMJ: u.EnergyMJ}
	span := now.Sub(was.At)
	if !known || span <= 0 || len(on) == 0 {
		return
	}
	mj := float64(0)
	switch {
	case u.EnergyMJ > 0 && was.EnergyMJ > 0 && u.EnergyMJ >= was.EnergyMJ:
		mj = float64(u.EnergyMJ - was.EnergyMJ) // even across a time without samples
	case u.PowerW >= 0 && was.PowerW >= 0 && span <= cardGap:
		mj = float64(u.PowerW+was.PowerW) / 2 * span.Seconds() * 1000
	}
	if began.After(was.At) { // the GPU was empty before
		mj *= now.Sub(began).Seconds() / span.Seconds()
	}
	total := int64(0)
	for _, p := range on {
		total += max(0, p.util)
	}
	for _, p := range on {
		part := 1 / float64(len(on))
		if total > 0 {
			part = float64(max(0, p.util)) / float64(total)
		}
		p.card.EnergyMJ += mj * part
	}
}

func (t *track) addCards(res *Result) {
	var util, activity integral
	energy := float64(0)
	for _, c := range t.Cards {
		res.GPUMemPeakMiB = max(res.GPUMemPeakMiB, c.PeakMiB)
		res.Profile.GpuMemMeanMib = max(res.Profile.GpuMemMeanMib, c.Mem.mean())
		util = integral{util.Sum + c.Util.Sum, util.Ms + c.Util.Ms}
		activity = integral{activity.Sum + c.Activity.Sum, activity.Ms + c.Activity.Ms}
		energy += c.EnergyMJ
	}
	res.Milli = util.mean()
	res.Profile.GpuP95Milli = t.Util.quantile(950)
	res.Profile.GpuMemActivityMilli = activity.mean()
	res.Profile.EnergyJ = int64(energy/1000 + 0.5)
}
