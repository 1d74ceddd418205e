package cards

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/gpu"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/gossip"
)

// busyMeter is a provider that integrates each GPU's utilization since it began to count.
type busyMeter interface {
	Busy(uuid string) (busy, elapsed time.Duration, err error)
}

// Usage returns the last usage of the GPUs; what cannot be read is left out.
func (nc *Cards) Usage() []*nodev1.GPUUsage {
	if nc.cfg.GPUs == nil {
		return nil
	}
	usage, _ := nc.Sampler.Last()
	usage = nc.oursUsed(usage)
	nc.mu.Lock()
	usable := nc.usable
	nc.mu.Unlock()
	out := make([]*nodev1.GPUUsage, 0, len(usage))
	for _, u := range usage {
		g := &nodev1.GPUUsage{
			Uuid: u.UUID, UsedMib: u.UsedMiB, UtilMilli: u.UtilMilli, FreeMib: max(0, usable[u.UUID]-u.UsedMiB),
			PowerW: max(0, u.PowerW), TemperatureC: u.TemperatureC,
		}
		if m, ok := nc.cfg.GPUs.(busyMeter); ok {
			if busy, elapsed, err := m.Busy(u.UUID); err == nil {
				g.BusyMs = busy.Milliseconds()
				g.Since = timestamppb.New(time.Now().Add(-elapsed))
			}
		}
		out = append(out, g)
	}
	return out
}

// Gossip returns the part of usage that is gossiped, GPUs with the most stray memory first.
// Here a stray counts at once: by the time it counts otherwise, its memory may have been given
// to a job.
func (nc *Cards) Gossip(usage []gpu.Usage) []gossip.GPU {
	usage = nc.oursUsed(usage)
	nc.mu.Lock()
	usable := nc.usable
	nc.mu.Unlock()
	out := make([]gossip.GPU, 0, len(usage))
	for i := range usage {
		u := &usage[i]
		_, stray := u.Strays()
		util := int64(gossip.UtilUnknown)
		if u.UtilMilli >= 0 && u.UtilMilli <= 1000 {
			util = u.UtilMilli
		}
		out = append(out, gossip.GPU{
			ID: gossip.UUIDHash(u.UUID), FreeMiB: uint32(max(0, usable[u.UUID]-u.UsedMiB)), StrayMiB: uint32(roundStrays(stray)), UtilMilli: uint16(util),
		})
	}
	slices.SortStableFunc(out, func(a, b gossip.GPU) int { return cmp.Compare(b.StrayMiB, a.StrayMiB) })
	return out
}

// UsageAfter returns the usage of the GPUs, sampled after an instant. It queries a provider
// with exact accounting; others take longer than a worker should wait, so it leaves them to the
// sampler.
func (nc *Cards) UsageAfter(ctx context.Context, after time.Time) ([]gpu.Usage, bool) {
	if _, exact := nc.cfg.GPUs.(gpu.Accountant); exact {
		ctx, cancel := context.WithTimeout(ctx, SampleDeadline)
		defer cancel()
		usage, err := nc.cfg.GPUs.Usage(ctx)
		return usage, err == nil
	}
	usage, at := nc.Sampler.Last()
	return usage, at.After(after)
}

// AttemptOfPID returns the attempt of a host pid when the GPU was last sampled, or "".
func (nc *Cards) AttemptOfPID(uuid string, pid int) string {
	usage, _ := nc.Sampler.Last()
	for _, u := range usage {
		for _, p := range u.Processes {
			if u.UUID == uuid && pid > 0 && p.PID == pid {
				return p.Attempt
			}
		}
	}
	return ""
}
