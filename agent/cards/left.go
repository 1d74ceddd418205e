package cards

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Quarantine keeps new attempts off the GPUs of an attempt, given by as, or with "" reopens
// them.
func (c *States) Quarantine(as *nodev1.Assignment, why string) {
	state := Quarantined
	if why == "" {
		state = OK
	}
	for _, s := range as.GetGpus() {
		c.Set(s.Uuid, conv.AttemptOf(as).String(), state, why)
	}
}

// Left returns what an ended attempt still has on its GPUs, by a sample taken after an instant;
// "" for nothing. baseMiB is what each held before without a process, and slackMiB how much
// more may stay.
func (nc *Cards) Left(ctx context.Context, after time.Time, as *nodev1.Assignment, baseMiB []int64, slackMiB int64) string {
	usage, ok := nc.UsageAfter(ctx, after)
	if !ok {
		return "the driver does not tell what is on its GPUs"
	}
	var words []string
	for i, s := range as.Gpus {
		base := int64(0)
		if i < len(baseMiB) {
			base = baseMiB[i]
		}
		if w := leftOn(usage, s.Uuid, conv.AttemptOf(as).String(), base, slackMiB); w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, "; ")
}

// leftOn returns what an attempt still has on a GPU according to its usage, "" for nothing:
// processes of the attempt, or memory above the previous baseline that no process accounts for.
// It ignores what others hold, including strays.
func leftOn(usage []gpu.Usage, uuid, attempt string, baseMiB, slackMiB int64) string {
	for i := range usage {
		u := &usage[i]
		if u.UUID != uuid {
			continue
		}
		for _, p := range u.Processes {
			if p.PID != 0 && p.Attempt == attempt {
				return fmt.Sprintf("GPU %s: process %d of it holds %d MiB", uuid, p.PID, max(0, p.MemMiB))
			}
		}
		free := Unexplained(u)
		if over := free - max(0, baseMiB); free != gpu.Unknown && baseMiB >= 0 && over > slackMiB {
			return fmt.Sprintf("GPU %s: %d MiB were not freed", uuid, over)
		}
		return ""
	}
	return "GPU " + uuid + " cannot be read"
}

// Unexplained returns the memory of a GPU that no process accounts for; gpu.Unknown where a
// process's memory is not reported.
func Unexplained(u *gpu.Usage) int64 {
	mib := u.UsedMiB
	for _, p := range u.Processes {
		if p.PID == 0 {
			continue
		}
		if p.MemMiB < 0 {
			return gpu.Unknown
		}
		mib -= p.MemMiB
	}
	return max(0, mib)
}
