package fsm

import (
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

const (
	maxEnergyJ = maxPowerW * 64 * 366 * 24 * 3600 // of all cards of a node in a year
	maxIOBytes = 1 << 60
	maxMilli   = 1000
)

// saneProfile bounds what an agent saw of a, whose Neighbours and times are
// set, so that no sum of it overflows. Of the neighbours it keeps those of whom
// the placements know.
func saneProfile(p *cluster.Profile, a *cluster.Attempt) *cluster.Profile {
	if p == nil {
		return nil
	}
	ran := a.Ended.Sub(max(a.Started, a.Placed))
	q := *p
	bound(&q.GPUMemMeanMiB, cluster.MaxMemMiB)
	bound(&q.MilliP95, maxMilli)
	bound(&q.MemActivity, maxMilli)
	bound(&q.EnergyJ, maxEnergyJ)
	bound(&q.HighWaterMiB, 16*cluster.MaxMemMiB)
	bound(&q.ReadBytes, maxIOBytes)
	bound(&q.WrittenBytes, maxIOBytes)
	q.Sampled, q.Gap = within(q.Sampled, ran), within(q.Gap, ran)
	q.Neighbours = nil
	for _, n := range p.Neighbours {
		if !slices.Contains(a.Neighbours, n.Job) {
			continue
		}
		if len(q.Neighbours) == cluster.MaxProfileSpans {
			q.MoreNeighbours++
			continue
		}
		n.From = within(n.From, ran)
		n.For = within(n.For, ran-n.From)
		bound(&n.Milli, maxMilli)
		q.Neighbours = append(q.Neighbours, n)
	}
	q.Neighbours = slices.Clip(q.Neighbours)
	q.MoreNeighbours = min(max(0, q.MoreNeighbours), maxMore)
	return &q
}

const maxMore = 1 << 20

func bound(v *int64, most int64) { *v = min(max(0, *v), most) }

// within bounds a time by the attempt's own, in the milliseconds that are
// stored: a state that was restored must be the state that was saved.
func within(d, most time.Duration) time.Duration {
	return min(max(0, d), max(0, most)).Truncate(time.Millisecond)
}
