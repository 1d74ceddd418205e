package caps

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Limits are a control group's memory limits on one GPU, in MiB. Above Soft the driver may
// reclaim memory, above Hard it refuses allocations.
type Limits struct{ Soft, Hard int64 }

// Limiter sets the driver's memory limits of a control group. Limits belong to a path and
// vanish with it.
type Limiter interface {
	SetMemoryLimits(ctx context.Context, uuid, cgroup string, l Limits) error
	MemoryLimits(ctx context.Context, uuid, cgroup string) (Limits, error)
}

// ErrNotHeld says that the driver does not enforce a job's share as requested, so the job
// must not start.
var ErrNotHeld = errors.New("the driver does not hold the job to its share of GPU memory")

// LimitGroup sets the limits of an attempt's control group on one GPU and reads them back.
// Errors wrap ErrNotHeld.
func LimitGroup(ctx context.Context, l Limiter, uuid, cgroup string, want Limits) error {
	if cgroup == "" || want.Hard <= 0 || want.Soft > want.Hard {
		return fmt.Errorf("%w: control group %q, limits of %d and %d MiB on GPU %s", ErrNotHeld, cgroup, want.Soft, want.Hard, uuid)
	}
	if err := l.SetMemoryLimits(ctx, uuid, cgroup, want); err != nil {
		return fmt.Errorf("%w: set %d MiB on GPU %s for %s: %w", ErrNotHeld, want.Hard, uuid, cgroup, err)
	}
	got, err := l.MemoryLimits(ctx, uuid, cgroup)
	if err != nil {
		return fmt.Errorf("%w: read the limit on GPU %s for %s back: %w", ErrNotHeld, uuid, cgroup, err)
	}
	if got != want {
		return fmt.Errorf("%w: GPU %s holds %s to %d and %d MiB, it was told %d and %d", ErrNotHeld, uuid, cgroup, got.Soft, got.Hard, want.Soft, want.Hard)
	}
	return nil
}

// Names of variables that the container toolkit's hook reads.
const (
	dmemRequest = "NVIDIA_GPU_MEMORY_REQUEST"
	dmemLimit   = "NVIDIA_GPU_MEMORY_LIMIT"
)

// DmemEnv returns the variables that tell the container toolkit's hook the share, in MiB.
// Only the agent may set them, see Reserved.
func DmemEnv(shareMiB int64) []string {
	v := strconv.FormatInt(shareMiB, 10)
	return []string{dmemRequest + "=" + v, dmemLimit + "=" + v}
}

// Reserved reports whether only the agent may set a variable: a user's own value would
// change a limit or lead to another daemon.
func Reserved(key string) bool {
	switch key {
	case dmemRequest, dmemLimit, mpsPipe, mpsLog, mpsMemory, mpsThreads:
		return true
	}
	return false
}
