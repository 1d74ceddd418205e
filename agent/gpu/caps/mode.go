// Package caps knows how a job is held to its share of a GPU's memory: which
// mechanism a card offers, who may share a card under it, what a watch over
// the measured memory does to a job above its cap, and how a job that ran out
// of GPU memory is told from one that failed otherwise. DESIGN.md says what
// each mechanism holds and what it does not.
package caps

// Mode is how the memory of a share is enforced on one card.
type Mode string

// The modes. The best that a card offers and the site allows is used; Sim is
// that of simulated cards, which enforce shares as the driver would.
const (
	Dmem  Mode = "dmem"  // the driver's limit on a control group
	MIG   Mode = "mig"   // the card is an instance, cut by the hardware
	MPS   Mode = "mps"   // a limit on each client of an MPS daemon
	Watch Mode = "watch" // the agent measures, and ends who is above its cap
	None  Mode = "none"  // nothing: a card is never shared
	Sim   Mode = "sim"
)

// Order lists the modes of real cards from the best to none.
func Order() []Mode { return []Mode{Dmem, MIG, MPS, Watch, None} }
