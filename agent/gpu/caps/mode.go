// Package caps determines how a job is held to its share of a GPU's memory: which mechanism
// a GPU supports, whose jobs may share a GPU under it, what a watch over the measured
// memory does to a job above its cap, and how a job that ran out of GPU memory is
// distinguished from one that failed otherwise. DESIGN.md says what each mechanism
// guarantees and what it does not.
package caps

// Mode is how the memory of a share is enforced on one card.
type Mode string

// The modes. The best one that a GPU supports and the site allows is used; Sim is for
// simulated GPUs, which enforce shares as the driver would.
const (
	Dmem  Mode = "dmem"  // the driver's limit on a control group
	MIG   Mode = "mig"   // the GPU is an instance, isolated by the hardware
	MPS   Mode = "mps"   // a limit on each client of an MPS daemon
	Watch Mode = "watch" // the agent measures, and ends attempts above their cap
	None  Mode = "none"  // nothing: a GPU is never shared
	Sim   Mode = "sim"
)

// Order lists the modes of real GPUs from the best to none.
func Order() []Mode { return []Mode{Dmem, MIG, MPS, Watch, None} }
