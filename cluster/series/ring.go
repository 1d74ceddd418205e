// Package series holds what GPUs showed over time, in steps of fixed length: rings
// that agents and the leader keep, and how to merge such lists.
package series

import (
	"encoding/binary"
	"math"
	"time"
)

// What is kept per GPU: an hour in steps of ten seconds, and a week in steps of
// five minutes.
const (
	FineStep    = 10 * time.Second
	FineSteps   = 360
	CoarseStep  = 5 * time.Minute
	CoarseSteps = 2016
	// Hour and Week are the lengths of time that they cover.
	Hour = FineSteps * FineStep
	Week = CoarseSteps * CoarseStep
)

// Sample is the state of a GPU in one step.
type Sample struct {
	At        int64 // start of the step, in seconds since 1970
	UsedMiB   int64 // maximum
	UtilMilli int32 // mean, -1 for unknown
	PowerW    uint32
}

// Reading is the state of a GPU at one time.
type Reading struct {
	UsedMiB   int64
	UtilMilli int64 // below 0 is unknown
	PowerW    int64 // 0 and below are unknown
}

// kept is the stored form of a sample.
type kept struct {
	at          uint32
	used        int32
	util, watts uint16
}

// unknownUtil stands for unknown utilization.
const unknownUtil = math.MaxUint16

// Ring holds the samples of one GPU. Each step has one slot, which it shares with
// the steps that are whole ring lengths away. It has no clock and no lock.
type Ring struct {
	step int64 // in seconds
	all  []kept
	// at is the step in progress, 0 for none, and the rest are its sums.
	at                          int64
	utils, watts, told, powered int64
}

// NewRing returns a ring of the given number of steps, each a whole number of
// seconds.
func NewRing(step time.Duration, steps int) *Ring {
	return &Ring{step: int64(step / time.Second), all: make([]kept, steps)}
}

// Place returns the slot of a step, from 0.
func (r *Ring) Place(at int64) int { return int(at / r.step % int64(len(r.all))) }

// Add adds a reading. If that ends a step, it returns the step's sample. A step
// that is entered again, because the clock was set back or Put restored it,
// continues: its mean so far counts as one reading.
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

// Going returns the sample of the step in progress, as far as it has come.
func (r *Ring) Going() (Sample, bool) {
	if r.at == 0 {
		return Sample{}, false
	}
	return r.all[r.Place(r.at)].sample(), true
}

// Put restores a sample; it returns false if the sample is not one of this ring's.
func (r *Ring) Put(m Sample) bool {
	if m.At <= 0 || m.At > math.MaxUint32 || m.At%r.step != 0 || m.UsedMiB < 0 || m.UsedMiB > math.MaxInt32 ||
		m.UtilMilli < -1 || m.UtilMilli > 1000 || m.PowerW > math.MaxUint16 {
		return false
	}
	r.all[r.Place(m.At)] = keep(m)
	return true
}

// Of returns the samples between two times, oldest first, at most a whole ring of
// them.
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

// keep converts a sample that Put has checked.
func keep(m Sample) kept {
	k := kept{at: uint32(m.At), used: int32(m.UsedMiB), util: unknownUtil, watts: uint16(m.PowerW)} // #nosec G115 -- checked
	if m.UtilMilli >= 0 {
		k.util = uint16(m.UtilMilli) // #nosec G115 -- checked
	}
	return k
}

// Size is the length of an encoded sample in bytes.
const Size = 12

// Encode encodes a ring's sample.
func Encode(m Sample) []byte {
	k := keep(m)
	b := make([]byte, 0, Size)
	b = binary.LittleEndian.AppendUint32(b, k.at)
	b = binary.LittleEndian.AppendUint32(b, uint32(k.used)) // #nosec G115 -- the same bits
	b = binary.LittleEndian.AppendUint16(b, k.util)
	return binary.LittleEndian.AppendUint16(b, k.watts)
}

// Decode decodes a sample from at least Size bytes, which may hold anything; see
// Put.
func Decode(b []byte) Sample {
	return kept{
		at: binary.LittleEndian.Uint32(b), used: int32(binary.LittleEndian.Uint32(b[4:])), // #nosec G115 -- the same bits
		util: binary.LittleEndian.Uint16(b[8:]), watts: binary.LittleEndian.Uint16(b[10:]),
	}.sample()
}

// Merge merges two lists of increasing times. Where both have a time, b wins.
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
