package scheduler

import "github.com/berth-scheduler/berth/scheduler/rules"

// What a site may choose stands in package rules; here are its names for callers of
// passes.
type (
	// Policy is what a site may choose.
	Policy = rules.Policy
	// Mode is how GPUs are given away.
	Mode = rules.Mode
	// Prices is what an hour of a GPU or of a core costs.
	Prices = rules.Prices
)

// The modes of package rules.
const (
	ModeFFD  = rules.ModeFFD
	ModeSlot = rules.ModeSlot
)

// Default returns the policy of a site that chose nothing.
func Default() Policy { return rules.Default() }
