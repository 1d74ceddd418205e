package gpu

import "context"

// Tuning is what the power limit and the clocks of a card are and may be, as its driver
// tells. 0, and no clocks, is what it does not tell.
type Tuning struct {
	// LimitMilliW is the power limit in force, DefaultMilliW the one that the card comes
	// with; MinMilliW and MaxMilliW are between which others may lie. All in milliwatts.
	LimitMilliW, DefaultMilliW, MinMilliW, MaxMilliW int64
	// ClocksMHz are those at which the card computes with its fastest memory clock.
	ClocksMHz []int64
}

// Tuner is a Provider that can hold whole cards to a power limit and to a clock. What is
// set stays until something else is, whoever is on the card and whatever becomes of the
// agent. A part of a card has neither.
type Tuner interface {
	// Tuning tells of a card. One that is not there is an error.
	Tuning(ctx context.Context, uuid string) (Tuning, error)
	// SetPowerLimit sets the limit, in milliwatts (nvmlDeviceSetPowerManagementLimit).
	SetPowerLimit(ctx context.Context, uuid string, milliW int64) error
	// LockClock holds the card to a clock in MHz (nvmlDeviceSetGpuLockedClocks), and with
	// 0 lets it choose again (nvmlDeviceResetGpuLockedClocks).
	LockClock(ctx context.Context, uuid string, mhz int64) error
}
