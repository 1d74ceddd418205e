// Package gpu is what the agent knows of GPUs, whoever reports them: package
// nvml reads the NVIDIA driver, package sim keeps the accounts of simulated
// cards. Cards are named by UUID everywhere; an index may change after a
// reboot and is for display only.
package gpu

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Unknown is the value of a figure that the driver does not give.
const Unknown = -1

// Errors that callers branch on.
var (
	// ErrNoDriver says that this node has no usable GPU driver.
	ErrNoDriver = errors.New("no NVIDIA driver")
	// ErrLost says that the driver lost a card that it had.
	ErrLost = errors.New("GPU is lost")
	// ErrSilent says that the driver does not answer for a card.
	ErrSilent = errors.New("GPU does not answer")
	// ErrUnknownCard says that a grant names a card that this node has not.
	ErrUnknownCard = errors.New("unknown GPU")
	// ErrOvercommit says that a grant does not fit beside those already given.
	ErrOvercommit = errors.New("grant does not fit on the GPU")
)

// CardError is what went wrong with one card. A Provider joins them to its
// answer about the others.
type CardError struct {
	Index int
	UUID  string // "" when the driver did not come so far
	Err   error
}

// Error implements error.
func (e *CardError) Error() string { return fmt.Sprintf("GPU %d: %v", e.Index, e.Err) }

// Unwrap returns what went wrong.
func (e *CardError) Unwrap() error { return e.Err }

// Card is one GPU as a provider reports it.
type Card struct {
	UUID string
	Type string // as NormalizeType writes it, such as "A100-SXM4-80GB"
	Name string // as the driver says it, such as "NVIDIA A100-SXM4-80GB"
	// Index is the driver's number of the card, for display only.
	Index int
	// MemMiB is all the memory of the card. ReservedMiB of it belongs to the
	// driver and is never a job's; it is 0 where the driver does not tell.
	MemMiB, ReservedMiB int64
	PCI                 string // "00000000:3B:00.0", or "" when unknown
	NUMA                int    // NUMA node, or Unknown
	// ComputeMajor and ComputeMinor are the CUDA compute capability, 0.0 when
	// unknown.
	ComputeMajor, ComputeMinor int
	PowerLimitW                int // 0 when unknown
	Driver                     string
	// CUDA is the newest version of CUDA that the driver runs, "13.0", or "".
	CUDA string
	// Persistence is off where the driver forgets a card's settings when its
	// last process ends. MIG reports whether the card is cut into Instances.
	Persistence, MIG Mode
	Instances        []Instance // ordered by UUID
	// NVLinkGroup is equal and positive for cards of this node that NVLink
	// joins, directly or through others or a switch; 0 for a card alone.
	// Groups are numbered in the order of their smallest UUID.
	NVLinkGroup int
	Simulated   bool
}

// Mode is a setting that a card may lack.
type Mode uint8

// The values of a setting.
const (
	ModeUnknown Mode = iota
	ModeOff
	ModeOn
)

// String returns "unknown", "off" or "on".
func (m Mode) String() string {
	switch m {
	case ModeOff:
		return "off"
	case ModeOn:
		return "on"
	}
	return "unknown"
}

// Instance is a part of a card in MIG mode, with memory and compute of its own.
type Instance struct {
	UUID    string // "MIG-..."
	Profile string // as nvidia-smi writes it, such as "1g.10gb", or "" when unknown
	MemMiB  int64
	// SMs is how many multiprocessors it has; 0 when unknown.
	SMs int
	// GI and CI are the ids of its GPU instance and compute instance.
	GI, CI int
}

// Process is what one process uses on a card.
type Process struct {
	// PID is a pid of the host's namespace. It is 0 in the entry that speaks of
	// an attempt none of whose processes is on the card any more.
	PID int
	// Attempt is the attempt the process belongs to ("j12-a1") when the
	// provider knows it, else "".
	Attempt string
	// Stray says that nobody started the process here through Berth. User is
	// its account, or its numeric uid when it has none, and Command the
	// kernel's name of the program; both are "" for others.
	Stray         bool
	User, Command string
	// Kinds are the lists of the driver that the process stands in.
	Kinds ProcessKinds
	// MemMiB is the memory of this process with its CUDA context, or Unknown.
	MemMiB int64
	// UtilMilli is its share of the card's compute in thousandths, or Unknown.
	UtilMilli int64
	// PeakMiB is the most that the processes of Attempt ever held together on
	// this card, contexts included. It is 0 when the provider keeps no peaks.
	PeakMiB int64
	// OOM says that an allocation of Attempt was refused on this card.
	OOM bool
}

// ProcessKinds is a set of the ways in which a process uses a card.
type ProcessKinds uint8

// The ways to use a card.
const (
	Compute ProcessKinds = 1 << iota
	Graphics
	MPSClient
)

// Usage is what one card does at this instant.
type Usage struct {
	UUID string
	// UsedMiB is memory held by processes, without the driver's reserve unless
	// WithReserve: old drivers do not tell the two apart.
	UsedMiB     int64
	WithReserve bool
	// UtilMilli is in thousandths of the card, Unknown when not supported.
	UtilMilli int64
	PowerW    int64 // Unknown when not supported
	// TemperatureC is of the chip, 0 when it is not known.
	TemperatureC int64
	// MemActivityMilli is the part of the last moment in which the card's memory
	// was read or written, in thousandths. EnergyMJ is what the card used since
	// the driver was loaded, in millijoules. Unknown when not supported.
	MemActivityMilli, EnergyMJ int64
	// Processes is ordered by PID.
	Processes []Process
}

// Grant is what an attempt may use. Granting is idempotent: the agent grants
// again what it adopts after a restart.
type Grant struct {
	Attempt string
	// UID is the user the attempt runs as. Providers that meet the job's
	// processes (sim) serve nobody else under this grant, except root and the
	// agent's own user.
	UID   uint32
	Cards []GrantCard
}

// GrantCard is the part of a Grant on one card.
type GrantCard struct {
	UUID string
	// MemMiB is the share of memory, the CUDA context of each of the attempt's
	// processes included. Milli is the share of compute in thousandths.
	MemMiB, Milli int64
	// GrantedMiB is there where the share was cut to what the attempt uses: it may hold
	// as much while nobody else is promised that memory.
	GrantedMiB int64
	// Exclusive means that nobody else has a grant on the card, and that
	// MemMiB caps nothing.
	Exclusive bool
}

// Account is what an attempt used of one card since it was admitted.
type Account struct {
	UUID string
	// MemMiB is held now, PeakMiB is the most held at once; contexts included.
	MemMiB, PeakMiB int64
	// Busy is the integral of utilization over time: a second at 40 % counts
	// 400 ms. Busy/Elapsed is the mean utilization.
	Busy, Elapsed time.Duration
	OOM           bool
}

// Provider reports the GPUs of a node and prepares them for attempts. Calls
// are safe for concurrent use.
type Provider interface {
	// Name is "nvml" or "sim".
	Name() string
	// Inventory returns every card it could read in index order, and an error
	// that joins those it could not: both may be non-empty at once.
	Inventory(ctx context.Context) ([]Card, error)
	// Usage returns one entry a card it could read, and one for each instance
	// of a card in MIG mode after it; errors as in Inventory.
	Usage(ctx context.Context) ([]Usage, error)
	// Admit prepares the cards of g before its attempt starts and returns the
	// environment the attempt needs. Equal grants give equal answers. Errors
	// wrap ErrUnknownCard or ErrOvercommit.
	Admit(ctx context.Context, g Grant) (env []string, err error)
	// Retire ends a grant. Retiring an unknown attempt does nothing.
	Retire(ctx context.Context, attempt string) error
	Close() error
}

// Accountant is a Provider that keeps exact accounts of each attempt. For the
// others the agent samples Usage.
type Accountant interface {
	// Account returns one entry a card of the attempt's grant, in the order of
	// the grant. The accounts of an attempt live until it is retired.
	Account(ctx context.Context, attempt string) ([]Account, error)
}

// Regranter is a Provider that keeps attempts to their shares itself, so that it
// must be told when a share changes.
type Regranter interface {
	// Regrant gives an admitted attempt other shares of the cards that it has; what
	// it holds stays its own. An attempt that is not admitted will be with its newest
	// shares: that is no error. Others wrap ErrOvercommit, and change nothing.
	Regrant(ctx context.Context, g Grant) error
}

// Strays returns the processes of u that nobody started here through Berth,
// and the memory that they hold. One whose memory is unknown counts as
// nothing.
func (u *Usage) Strays() (procs []Process, memMiB int64) {
	for _, p := range u.Processes {
		if p.Stray {
			procs = append(procs, p)
			memMiB += max(0, p.MemMiB)
		}
	}
	return procs, memMiB
}

// Validate says what is wrong with g by itself, without looking at any card.
func (g Grant) Validate() error {
	if g.Attempt == "" {
		return errors.New("grant without an attempt")
	}
	seen := make(map[string]struct{}, len(g.Cards))
	for _, c := range g.Cards {
		if c.UUID == "" {
			return fmt.Errorf("grant of %s: card without a UUID", g.Attempt)
		}
		if _, dup := seen[c.UUID]; dup {
			return fmt.Errorf("grant of %s: GPU %s named twice", g.Attempt, c.UUID)
		}
		seen[c.UUID] = struct{}{}
		if c.MemMiB < 0 || (c.MemMiB == 0 && !c.Exclusive) {
			return fmt.Errorf("grant of %s: GPU %s: memory %d MiB; a shared grant needs at least 1 MiB", g.Attempt, c.UUID, c.MemMiB)
		}
		if c.Milli < 0 || c.Milli > 1000 {
			return fmt.Errorf("grant of %s: GPU %s: compute %d thousandths is outside 0-1000", g.Attempt, c.UUID, c.Milli)
		}
	}
	return nil
}
