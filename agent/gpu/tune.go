package gpu

import "context"

// Tuning is the power limit and the clocks of a GPU, and their allowed values, as the
// driver reports them. What it does not report is 0 or empty.
type Tuning struct {
	// LimitMilliW is the power limit in force, DefaultMilliW the GPU's default; others must
	// be between MinMilliW and MaxMilliW. All in milliwatts.
	LimitMilliW, DefaultMilliW, MinMilliW, MaxMilliW int64
	// ClocksMHz are the clocks available with its fastest memory clock.
	ClocksMHz []int64
}

// Tuner is a Provider that can set a power limit and lock the clock of whole GPUs. A
// setting stays until it is changed, whatever is on the GPU and whatever happens to the
// agent. A part of a GPU has neither setting.
type Tuner interface {
	// Tuning returns the settings of a GPU. A missing GPU is an error.
	Tuning(ctx context.Context, uuid string) (Tuning, error)
	// SetPowerLimit sets the limit, in milliwatts (nvmlDeviceSetPowerManagementLimit).
	SetPowerLimit(ctx context.Context, uuid string, milliW int64) error
	// LockClock locks the GPU to a clock in MHz (nvmlDeviceSetGpuLockedClocks), or with 0
	// unlocks it (nvmlDeviceResetGpuLockedClocks).
	LockClock(ctx context.Context, uuid string, mhz int64) error
}
