package nodes

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// What is remembered of what cards show: an hour, in steps, of so many cards, which is
// 70 MB at most.
const (
	SeriesStep  = 10 * time.Second
	seriesSteps = 360
	seriesCards = 16 << 10
)

// Sample is what a card showed in one step.
type Sample struct {
	At        int64 // seconds since 1970
	UsedMiB   int64 // the most
	UtilMilli int32 // the mean, -1 for unknown
	PowerW    uint32
}

// kept is a sample as it is remembered.
type kept struct {
	at          uint32
	used        int32
	util, watts uint16
}

const unknownUtil = 1<<16 - 1

// ring is the last samples of a card.
type ring struct {
	all  [seriesSteps]kept
	next int
	// Sums of the step that goes on, which is the newest sample.
	utils, watts, told, powered int64
}

// series remembers what cards showed. Its owner holds a lock.
type series map[cluster.GPUID]*ring

func (s series) add(gpu cluster.GPUID, now time.Time, u *nodev1.GPUUsage) {
	r := s[gpu]
	if r == nil {
		if len(s) >= seriesCards {
			return
		}
		r = &ring{}
		s[gpu] = r
	}
	at := uint32(now.Truncate(SeriesStep).Unix()) // #nosec G115 -- until 2106
	last := &r.all[(r.next+seriesSteps-1)%seriesSteps]
	if last.at != at {
		last = &r.all[r.next]
		*last = kept{at: at, util: unknownUtil}
		r.next = (r.next + 1) % seriesSteps
		r.utils, r.watts, r.told, r.powered = 0, 0, 0, 0
	}
	last.used = max(last.used, int32(min(max(0, u.UsedMib), 1<<31-1)))
	if u.UtilMilli >= 0 {
		r.utils, r.told = r.utils+min(u.UtilMilli, 1000), r.told+1
		last.util = uint16(r.utils / r.told) // #nosec G115 -- at most 1000
	}
	if u.PowerW > 0 {
		r.watts, r.powered = r.watts+min(u.PowerW, 1<<16-1), r.powered+1
		last.watts = uint16(r.watts / r.powered) // #nosec G115 -- bounded above
	}
}

// of is what a card showed from one time to another, the oldest first.
func (s series) of(gpu cluster.GPUID, from, to time.Time) []Sample {
	r := s[gpu]
	if r == nil {
		return nil
	}
	var out []Sample
	for i := range seriesSteps {
		k := r.all[(r.next+i)%seriesSteps]
		if at := time.Unix(int64(k.at), 0); k.at == 0 || at.Before(from.Truncate(SeriesStep)) || at.After(to) {
			continue
		}
		m := Sample{At: int64(k.at), UsedMiB: int64(k.used), UtilMilli: int32(k.util), PowerW: uint32(k.watts)}
		if k.util == unknownUtil {
			m.UtilMilli = -1
		}
		out = append(out, m)
	}
	return out
}

// Series is what a card showed within the last hour from one time to another, as far as
// this coordinator led then, the oldest first.
func (n *Nodes) Series(gpu cluster.GPUID, from, to time.Time) []Sample {
	n.live.mu.Lock()
	defer n.live.mu.Unlock()
	return n.live.series.of(gpu, from, to)
}
