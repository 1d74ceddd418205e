package gpu

import (
	"context"
	"fmt"
	"slices"
)

// Profile is a size of instance that a GPU in MIG mode can be cut into, as the driver
// describes it (nvmlDeviceGetGpuInstanceProfileInfo,
// nvmlDeviceGetGpuInstancePossiblePlacements).
type Profile struct {
	Name   string // as nvidia-smi writes it, such as "1g.10gb"
	MemMiB int64
	// Compute is how many sevenths of the GPU's multiprocessors it has.
	Compute int
	// Size is how many of the GPU's memory slices it takes, and Starts the slices at which
	// one can begin, ascending.
	Size   int
	Starts []int
}

// Piece is an instance to be made: a profile, and the memory slice at which it begins.
type Piece struct {
	Profile string
	Start   int
}

// Cut replaces instances of one GPU by others.
type Cut struct {
	UUID string   // of the GPU, which is in MIG mode
	Drop []string // UUIDs of the instances that go
	Make []Piece
}

// MaxSlices bounds what is read of a GPU's profiles: no GPU has more than 8 memory slices.
const MaxSlices = 16

// Check returns what is wrong with a cut by itself.
func (c *Cut) Check() error {
	switch {
	case c.UUID == "":
		return fmt.Errorf("cut of no GPU")
	case len(c.Make) > MaxSlices || len(c.Drop) > MaxSlices:
		return fmt.Errorf("cut of GPU %s: %d instances go and %d come, at most %d", c.UUID, len(c.Drop), len(c.Make), MaxSlices)
	}
	return nil
}

// Cutter is a Provider that changes the instances of GPUs in MIG mode.
type Cutter interface {
	// Cut destroys instances on which nothing runs, and makes others. If it fails midway,
	// the GPU has fewer instances than before, which Inventory reports. Errors wrap
	// ErrUnknownCard if the GPU, an instance or a profile does not exist.
	Cut(ctx context.Context, c Cut) error
}

// Profile returns the profile of a name, nil if the GPU has none.
func (c *Card) Profile(name string) *Profile {
	i := slices.IndexFunc(c.Profiles, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Profiles[i]
}
