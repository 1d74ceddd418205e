package caps

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster"
)

// Choice is how the shares of one GPU are enforced, and whose jobs may then be co-located.
type Choice struct {
	Mode  Mode
	Scope cluster.Scope
	// Why says what rules out each better mode, best first.
	Why []Lack
}

// Lack is why a GPU does not support a mode.
type Lack struct {
	Mode Mode
	Why  string
}

// String returns the reasons in one line, "" for none.
func (c Choice) String() string {
	var parts []string
	for _, l := range c.Why {
		parts = append(parts, string(l.Mode)+": "+l.Why)
	}
	return strings.Join(parts, "; ")
}

// Policy is what a site allows.
type Policy struct {
	// Allowed are the modes that may be used.
	Allowed []Mode
	// Scopes says whose jobs may share a GPU under a mode; a missing mode allows none.
	Scopes map[Mode]cluster.Scope
	// Simulated is the mode of simulated GPUs, Sim or Watch.
	Simulated Mode
}

// Chooser picks the mode of each GPU. Create it with the facts of the node; it is safe for
// concurrent use while it is not changed.
type Chooser struct {
	Policy Policy
	Host   Host
}

// Minimum versions for the modes.
const (
	dmemDriver   = 615 // the first branch whose driver limits a control group
	mpsCUDA      = 11_05
	voltaCompute = 7 // MPS clients on older GPUs have no limits of their own
)

// Choose returns the best mode that a GPU supports and the site allows.
func (c *Chooser) Choose(card gpu.Card) Choice {
	if card.Simulated && !IsInstance(card.UUID) {
		return c.with(c.Policy.Simulated, nil)
	}
	var lacks []Lack
	for _, m := range Order() {
		if m == None {
			break
		}
		why := ""
		if !slices.Contains(c.Policy.Allowed, m) {
			why = "gpus.caps does not allow it"
		} else {
			why = c.lack(m, &card)
		}
		if why == "" {
			return c.with(m, lacks)
		}
		lacks = append(lacks, Lack{m, why})
	}
	return Choice{Mode: None, Why: lacks}
}

func (c *Chooser) with(m Mode, lacks []Lack) Choice {
	ch := Choice{Mode: m, Why: lacks}
	switch scope, ok := c.Policy.Scopes[m]; {
	case m == MIG: // a share is the whole instance
		ch.Scope = cluster.ScopeNever
	case m == Sim:
	case !ok:
		ch.Scope = cluster.ScopeNever
	default:
		ch.Scope = scope
	}
	return ch
}

// lack says why a GPU does not support a mode, or returns "".
func (c *Chooser) lack(m Mode, card *gpu.Card) string {
	switch m {
	case Dmem:
		return c.lacksDmem(card)
	case MIG:
		if !IsInstance(card.UUID) {
			return "the card is not cut into instances"
		}
		return ""
	case MPS:
		return c.lacksMPS(card)
	}
	return "" // whatever reports a GPU reports what its processes hold
}

func (c *Chooser) lacksDmem(card *gpu.Card) string {
	switch driver, ok := driverBranch(card.Driver); {
	case IsInstance(card.UUID):
		return "instances have memory of their own"
	case !ok:
		return fmt.Sprintf("the driver's version %q is not known", card.Driver)
	case driver < dmemDriver:
		return fmt.Sprintf("driver %s is older than %d", card.Driver, dmemDriver)
	case !c.Host.CgroupV2:
		return "this node has control groups of version 1"
	case !c.Host.Dmem && !c.Host.MiscNVIDIA:
		return "neither the kernel's dmem controller (6.14 or later) nor the driver's entry in misc.capacity is there"
	case c.Host.Limiter == nil:
		return "this version of berth cannot set and read back NVML's limits of a control group"
	}
	return ""
}

func (c *Chooser) lacksMPS(card *gpu.Card) string {
	switch cuda, ok := cudaVersion(card.CUDA); {
	case IsInstance(card.UUID):
		return "an instance is not shared further"
	case c.Host.MPSControl == "":
		return "nvidia-cuda-mps-control is not installed"
	case !c.Host.Root:
		return "the agent does not run as root"
	case !ok:
		return fmt.Sprintf("the CUDA version %q of the driver is not known", card.CUDA)
	case cuda < mpsCUDA:
		return fmt.Sprintf("CUDA %s is older than 11.5", card.CUDA)
	case card.ComputeMajor < voltaCompute:
		return fmt.Sprintf("compute capability %d.%d is less than 7.0", card.ComputeMajor, card.ComputeMinor)
	}
	return ""
}

// driverBranch parses the first number of a driver's version.
func driverBranch(v string) (int, bool) {
	head, _, _ := strings.Cut(v, ".")
	n, err := strconv.Atoi(head)
	return n, err == nil && n > 0
}

// cudaVersion parses "12.4" as 1204.
func cudaVersion(v string) (int, bool) {
	a, b, _ := strings.Cut(v, ".")
	major, err := strconv.Atoi(a)
	if err != nil || major < 1 {
		return 0, false
	}
	minor, err := strconv.Atoi(b)
	if err != nil || minor < 0 || minor > 99 {
		return 0, false
	}
	return major*100 + minor, true
}
