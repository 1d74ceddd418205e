// Package series is what cards showed over time, in steps of one length: rings that
// nodes' agents and the leader keep, and how such lists are put together.
package series

import (
	"encoding/binary"
	"math"
	"time"
)

// What is kept of a card: an hour in steps of ten seconds, and a week in steps of five
// minutes.
const (
	FineStep    = 10 * time.Second
	FineSteps   = 360
	CoarseStep  = 5 * time.Minute
	CoarseSteps = 2016
	// Hour and Week are how far back they go.
	Hour = FineSteps * FineStep
	Week = CoarseSteps * CoarseStep
)

// Sample is what a card showed in one step.
type Sample struct {
	At        int64 // when the step began, in seconds since 1970
	UsedMiB   int64 // the most
	UtilMilli int32 // the mean, -1 for unknown
	PowerW    uint32
}

// Reading is what a card shows at one time.
type Reading struct {
	UsedMiB   int64
	UtilMilli int64 // below 0 is unknown
	PowerW    int64 // 0 and below are unknown
}

// kept is a sample as it is remembered.
type kept struct {
	at          uint32
	used        int32
	util, watts uint16
}

// unknownUtil stands for a use that is not known.
const unknownUtil = math.MaxUint16

// Ring is the samples of one card: each step has one place, which it shares with those
// that are whole rings before and after it. It has no clock and no lock.
type Ring struct {
	step int64 // in seconds
	all  []kept
	// at is the step that goes on, 0 for none, and these are its sums.
	at                          int64
	utils, watts, told, powered int64
}

// NewRing makes a ring of so many steps of whole seconds.
func NewRing(step time.Duration, steps int) *Ring {
	return &Ring{step: int64(step / time.Second), all: make([]kept, steps)}
}

// Place is where the sample of a step lies, from 0 on.
func (r *Ring) Place(at int64) int { return int(at / r.step % int64(len(r.all))) }

// Add takes over a reading. When a step ended with that it returns its sample.
// A step that is come back to, by a clock that was set back or by what Put restored, goes
// on: its mean so far counts like one reading.
func (r *Ring) Add(now time.Time, v Reading) (ended Sample, ok bool) {
	at := now.Unix() / r.step * r.step
	if at <= 0 || at > math.MaxUint32 {
		return Sample{}, false
	}
	k := &r.all[r.Place(at)]
	if r.at != at {
		ended, ok = r.Going()
		if int64(k.at) != at {
			*k = kept{at: uint32(at), util: unknownUtil} // #nosec G115 -- bounded above
		}
		r.at, r.utils, r.watts, r.told, r.powered = at, 0, int64(k.watts), 0, 0
		if k.watts > 0 {
			r.powered = 1
		}
		if k.util != unknownUtil {
			r.utils, r.told = int64(k.util), 1
		}
	}
	k.used = max(k.used, int32(min(max(0, v.UsedMiB), math.MaxInt32))) // #nosec G115 -- bounded here
	if v.UtilMilli >= 0 {
		r.utils, r.told = r.utils+min(v.UtilMilli, 1000), r.told+1
		k.util = uint16(r.utils / r.told) // #nosec G115 -- at most 1000
	}
	if v.PowerW > 0 {
		r.watts, r.powered = r.watts+min(v.PowerW, math.MaxUint16), r.powered+1
		k.watts = uint16(r.watts / r.powered) // #nosec G115 -- bounded above
	}
	return ended, ok
}

// Going is the sample of the step that goes on, as far as it is.
func (r *Ring) Going() (Sample, bool) {
	if r.at == 0 {
		return Sample{}, false
	}
	return r.all[r.Place(r.at)].sample(), true
}

// Put restores a sample; false when it is none of this ring's.
func (r *Ring) Put(m Sample) bool {
	if m.At <= 0 || m.At > math.MaxUint32 || m.At%r.step != 0 || m.UsedMiB < 0 || m.UsedMiB > math.MaxInt32 ||
		m.UtilMilli < -1 || m.UtilMilli > 1000 || m.PowerW > math.MaxUint16 {
		return false
	}
	r.all[r.Place(m.At)] = keep(m)
	return true
}

// Of is what the card showed from one time to another, the oldest first and at most a
// whole ring of it.
func (r *Ring) Of(from, to time.Time) []Sample {
	first, last := from.Unix()/r.step, to.Unix()/r.step
	var out []Sample
	for n := max(1, first, last-int64(len(r.all))+1); n <= last; n++ {
		if k := r.all[n%int64(len(r.all))]; int64(k.at) == n*r.step {
			out = append(out, k.sample())
		}
	}
	return out
}

func (k kept) sample() Sample {
	m := Sample{At: int64(k.at), UsedMiB: int64(k.used), UtilMilli: int32(k.util), PowerW: uint32(k.watts)}
	if k.util == unknownUtil {
		m.UtilMilli = -1
	}
	return m
}

// keep is a sample that Put found right.
func keep(m Sample) kept {
	k := kept{at: uint32(m.At), used: int32(m.UsedMiB), util: unknownUtil, watts: uint16(m.PowerW)} // #nosec G115 -- checked
	if m.UtilMilli >= 0 {
		k.util = uint16(m.UtilMilli) // #nosec G115 -- checked
	}
	return k
}

// Size is the bytes of an encoded sample.
const Size = 12

// Encode is a ring's sample in bytes.
func Encode(m Sample) []byte {
	k := keep(m)
	b := make([]byte, 0, Size)
	b = binary.LittleEndian.AppendUint32(b, k.at)
	b = binary.LittleEndian.AppendUint32(b, uint32(k.used)) // #nosec G115 -- the same bits
	b = binary.LittleEndian.AppendUint16(b, k.util)
	return binary.LittleEndian.AppendUint16(b, k.watts)
}

// Decode is the sample of at least Size bytes, whatever they are; see Put.
func Decode(b []byte) Sample {
	return kept{
		at: binary.LittleEndian.Uint32(b), used: int32(binary.LittleEndian.Uint32(b[4:])), // #nosec G115 -- the same bits
		util: binary.LittleEndian.Uint16(b[8:]), watts: binary.LittleEndian.Uint16(b[10:]),
	}.sample()
}

// Merge puts two lists of rising times together. Where both have a time it is b's.
func Merge(a, b []Sample) []Sample {
	out := make([]Sample, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].At < b[0].At:
			out, a = append(out, a[0]), a[1:]
		case a[0].At == b[0].At:
			a = a[1:]
		default:
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}
