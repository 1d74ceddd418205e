package caps

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// WatchConfig configures when a job above its cap is ended.
type WatchConfig struct {
	// SlackMilli is how far above its cap a job may be, in thousandths of the cap: 1050
	// tolerates a twentieth. For is how long it may be above that.
	SlackMilli int64
	For        time.Duration
	// FloorMiB is the free memory of a GPU below which a job above its cap is ended at
	// once: the next refused allocation may be a neighbour's. The job's growth since the
	// last sample is added to it twice, for what it allocates until its end.
	FloorMiB int64
}

// DefaultWatch tolerates a twentieth for three seconds, as long as 1 GiB of the GPU is
// free.
func DefaultWatch() WatchConfig {
	return WatchConfig{SlackMilli: 1050, For: 3 * time.Second, FloorMiB: 1024}
}

// Breach is a job above its cap that must end.
type Breach struct {
	Attempt, UUID string
	// HeldMiB is what the attempt held on the GPU at that point, and CapMiB its share
	// there.
	HeldMiB, CapMiB int64
	// Since is when it was first seen above its cap.
	Since time.Time
	// Urgent says that the GPU is nearly full: there is no time for a grace.
	Urgent bool
}

// Watcher finds the jobs above their cap. It keeps the history it needs, has no clock, and
// is not safe for concurrent use.
type Watcher struct {
	cfg    WatchConfig
	shares map[string]map[string]*share // by attempt, then by GPU
	usable map[string]int64             // MiB of each GPU available to processes
	guilty map[string]offence           // by GPU
}

// offence records the attempt last seen above its cap on a GPU.
type offence struct {
	attempt string
	at      time.Time
	over    int64
}

// Cap is how much an attempt may hold of a GPU. MiB 0 is an exclusive share, limited only
// by the GPU itself. MostMiB is set for a share that was cut to what is used: the attempt
// may hold this much while that memory is promised to no other attempt.
type Cap struct{ MiB, MostMiB int64 }

// share is what is known of an attempt on a GPU.
type share struct {
	given    Cap
	cap      int64     // the most that it may hold now
	limit    int64     // the cap, or the GPU's memory for an exclusive share
	over     time.Time // since when it has been above its slack, zero when it is not
	held     int64
	peak     int64
	near     time.Time // when it was last seen at 97 % of its cap or more
	reported bool
	urgent   bool
}

// NewWatcher returns a watcher without attempts.
func NewWatcher(cfg WatchConfig) *Watcher {
	return &Watcher{cfg: cfg, shares: map[string]map[string]*share{}, usable: map[string]int64{}, guilty: map[string]offence{}}
}

// SetUsable sets how much memory of each GPU is available to processes, by UUID: all of it
// less the driver's reserve. A GPU that is not listed has no floor.
func (w *Watcher) SetUsable(mib map[string]int64) { w.usable = maps.Clone(mib) }

// Hold begins to watch an attempt with its cap by GPU. Repeating it changes only the caps.
func (w *Watcher) Hold(attempt string, capOf map[string]Cap) {
	on := w.shares[attempt]
	if on == nil {
		on = map[string]*share{}
		w.shares[attempt] = on
	}
	for uuid, c := range capOf {
		if on[uuid] == nil {
			on[uuid] = &share{}
		}
		on[uuid].given, on[uuid].cap = c, c.MiB
	}
}

// Drop ends the watch over an attempt.
func (w *Watcher) Drop(attempt string) { delete(w.shares, attempt) }

// Observe takes a sample of the GPUs at an instant and returns the attempts that must end,
// ordered by attempt and GPU. Each breach is returned once, and once more when it becomes
// urgent. A figure that the driver does not provide counts as zero: no attempt is ended for
// what is unknown.
func (w *Watcher) Observe(now time.Time, usage []gpu.Usage) []Breach {
	var out []Breach
	for _, u := range usage {
		held := map[string]int64{}
		for _, p := range u.Processes {
			if p.Attempt != "" {
				held[p.Attempt] += max(0, p.MemMiB)
			}
		}
		usable, known := w.usable[u.UUID]
		w.lend(u.UUID, held, usable)
		for attempt, on := range w.shares {
			if s := on[u.UUID]; s != nil {
				grew := max(0, held[attempt]-s.held)
				s.take(now, held[attempt], usable, w.cfg.SlackMilli)
				w.blame(now, attempt, u.UUID, s)
				full := known && usable-u.UsedMiB < w.cfg.FloorMiB+2*grew
				if b, ok := s.breach(now, full, w.cfg.For); ok {
					b.Attempt, b.UUID = attempt, u.UUID
					out = append(out, b)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Breach) int {
		if c := strings.Compare(a.Attempt, b.Attempt); c != 0 {
			return c
		}
		return strings.Compare(a.UUID, b.UUID)
	})
	return out
}

// lend lets attempts with cut shares hold more of a GPU than those, as far as no other
// attempt there is promised or holds that memory.
func (w *Watcher) lend(uuid string, held map[string]int64, usable int64) {
	for attempt, on := range w.shares {
		s := on[uuid]
		if s == nil || s.given.MostMiB <= s.given.MiB {
			continue
		}
		room := usable
		for other, on := range w.shares {
			if o := on[uuid]; o != nil && other != attempt {
				room -= max(o.given.MiB, held[other])
			}
		}
		s.cap = min(s.given.MostMiB, max(s.given.MiB, room))
	}
}

// take adds one sample.
func (s *share) take(now time.Time, held, usable, slackMilli int64) {
	s.held, s.limit = held, s.cap
	if s.cap <= 0 {
		s.limit = usable
	}
	s.peak = max(s.peak, held)
	if s.limit > 0 && held*1000 >= s.limit*nearMilli {
		s.near = now
	}
	switch {
	case s.cap <= 0 || held*1000 <= s.cap*slackMilli:
		s.over, s.reported, s.urgent = time.Time{}, false, false
	case s.over.IsZero():
		s.over = now
	}
}

// breach reports whether the share must end because of its last sample.
func (s *share) breach(now time.Time, full bool, after time.Duration) (Breach, bool) {
	if s.over.IsZero() {
		return Breach{}, false
	}
	late := now.Sub(s.over) >= after
	if !full && (!late || s.reported) || full && s.urgent {
		return Breach{}, false
	}
	s.reported, s.urgent = true, full
	return Breach{HeldMiB: s.held, CapMiB: s.cap, Since: s.over, Urgent: full}, true
}

// nearMilli is how near to its cap, in thousandths of it, a job counts as having run out of
// memory.
const nearMilli = 970

// Held is what an attempt held of one GPU. The limit is its cap, or the GPU's memory under
// an exclusive share, and 0 when unknown.
type Held struct {
	UUID              string
	LimitMiB, PeakMiB int64
	// Near says that it held 97 % of its cap or more shortly before at.
	Near bool
}

// lastSamples is how long before its end an attempt's last samples begin.
const lastSamples = 10 * time.Second

// Peak returns what an attempt held on the GPU where it came nearest to its limit; ok is
// false when it is not watched. at is when it ended.
func (w *Watcher) Peak(attempt string, at time.Time) (h Held, ok bool) {
	for _, uuid := range slices.Sorted(maps.Keys(w.shares[attempt])) {
		s := w.shares[attempt][uuid]
		near := !s.near.IsZero() && at.Sub(s.near) <= lastSamples
		// Fractions are compared by cross-multiplication.
		if !ok || near && !h.Near || s.peak*max(1, h.LimitMiB) > h.PeakMiB*max(1, s.limit) && near == h.Near {
			h, ok = Held{UUID: uuid, LimitMiB: s.limit, PeakMiB: s.peak, Near: near}, true
		}
	}
	return h, ok
}

// blame records the attempt furthest above its cap on a GPU.
func (w *Watcher) blame(now time.Time, attempt, uuid string, s *share) {
	over := s.held - s.cap
	if s.over.IsZero() {
		return
	}
	if g := w.guilty[uuid]; g.at.Before(now) || over > g.over || over == g.over && attempt < g.attempt {
		w.guilty[uuid] = offence{attempt: attempt, at: now, over: over}
	}
}

// Blame returns the attempt other than not that was above its cap on a GPU shortly before
// at, or "".
func (w *Watcher) Blame(uuid, not string, at time.Time) (attempt string) {
	if g, ok := w.guilty[uuid]; ok && g.attempt != not && at.Sub(g.at) <= lastSamples {
		return g.attempt
	}
	return ""
}

// SuggestText is Suggest as users write it, "22GiB" or "5632MiB".
func SuggestText(peakMiB, capMiB int64) string {
	mib := Suggest(peakMiB, capMiB)
	if mib%1024 == 0 {
		return strconv.FormatInt(mib/1024, 10) + "GiB"
	}
	return strconv.FormatInt(mib, 10) + "MiB"
}

// Suggest returns the memory to request after a peak: a tenth more, in whole GiB where that
// is a small step and otherwise in steps of 256 MiB, and always more than the cap was.
func Suggest(peakMiB, capMiB int64) int64 {
	want := max(peakMiB, capMiB)
	want += max(want/10, 256)
	step := int64(256)
	if want >= 8<<10 {
		step = 1 << 10
	}
	return (want + step - 1) / step * step
}
