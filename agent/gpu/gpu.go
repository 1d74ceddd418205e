// Package gpu defines what the agent knows of GPUs, whatever reports them: package nvml
// reads the NVIDIA driver, package sim keeps the accounts of simulated GPUs. GPUs are
// identified by UUID everywhere; an index may change after a reboot and is for display
// only.
package gpu

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Unknown is the value of a figure that the driver does not provide.
const Unknown = -1

// DriverSimulated is the driver of simulated cards that were given no version of one.
const DriverSimulated = "simulated"

// Errors that callers distinguish.
var (
	// ErrNoDriver says that this node has no usable GPU driver.
	ErrNoDriver = errors.New("no NVIDIA driver")
	// ErrLost says that the driver lost a GPU.
	ErrLost = errors.New("GPU is lost")
	// ErrSilent says that the driver does not answer for a GPU.
	ErrSilent = errors.New("GPU does not answer")
	// ErrUnknownCard says that a grant names a GPU that this node does not have.
	ErrUnknownCard = errors.New("unknown GPU")
	// ErrOvercommit says that a grant does not fit next to those already given.
	ErrOvercommit = errors.New("grant does not fit on the GPU")
)

// CardError is an error of one GPU. A Provider returns such errors joined, along with its
// answer about the other GPUs.
type CardError struct {
	Index int
	UUID  string // "" when the driver did not get that far
	Err   error
}

// Error implements error.
func (e *CardError) Error() string { return fmt.Sprintf("GPU %d: %v", e.Index, e.Err) }

// Unwrap returns the cause.
func (e *CardError) Unwrap() error { return e.Err }

// Card is one GPU as a provider reports it.
type Card struct {
	UUID string
	Type string // in the form of NormalizeType, such as "A100-SXM4-80GB"
	Name string // as the driver reports it, such as "NVIDIA A100-SXM4-80GB"
	// Index is the driver's index of the GPU, for display only.
	Index int
	// MemMiB is the total memory of the GPU. ReservedMiB of it belongs to the driver and is
	// never available to jobs; it is 0 where the driver does not report it.
	MemMiB, ReservedMiB int64
	PCI                 string // "00000000:3B:00.0", or "" when unknown
	NUMA                int    // NUMA node, or Unknown
	// ComputeMajor and ComputeMinor are the CUDA compute capability, 0.0 when
	// unknown.
	ComputeMajor, ComputeMinor int
	PowerLimitW                int // 0 when unknown
	Driver                     string
	// CUDA is the newest version of CUDA that the driver supports, such as "13.0", or "".
	CUDA string
	// Persistence is off where the driver forgets a GPU's settings when its last process
	// ends. MIG reports whether the GPU is divided into Instances.
	Persistence, MIG Mode
	Instances        []Instance // ordered by UUID
	// Profiles are the sizes of instance that it can have: empty unless it is in MIG mode
	// and the driver describes them.
	Profiles []Profile
	// NVLinkGroup is the same positive number for GPUs of this node that NVLink connects,
	// directly or through others or a switch; 0 for a GPU alone. Groups are numbered in the
	// order of their smallest UUID.
	NVLinkGroup int
	Simulated   bool
}

// Mode is a setting that a GPU may lack.
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

// Instance is a part of a GPU in MIG mode, with its own memory and compute.
type Instance struct {
	UUID    string // "MIG-..."
	Profile string // as nvidia-smi writes it, such as "1g.10gb", or "" when unknown
	MemMiB  int64
	// SMs is the number of its multiprocessors; 0 when unknown.
	SMs int
	// GI and CI are the ids of its GPU instance and compute instance.
	GI, CI int
	// Start is the first of the GPU's memory slices that it takes, and Size their number;
	// Size is 0 when unknown.
	Start, Size int
}

// Process is the use of a GPU by one process.
type Process struct {
	// PID is a pid in the host's namespace. It is 0 in the entry for an attempt that has no
	// process left on the GPU.
	PID int
	// Attempt is the attempt the process belongs to ("j12-a1") when the
	// provider knows it, else "".
	Attempt string
	// Stray says that the process was not started here through Berth. User is its account,
	// or its numeric uid without one, and Command the kernel's name of the program; both
	// are "" for other processes.
	Stray         bool
	User, Command string
	// Kinds are the driver's process lists that contain it.
	Kinds ProcessKinds
	// MemMiB is the memory of this process including its CUDA context, or Unknown.
	MemMiB int64
	// UtilMilli is its share of the GPU's compute in thousandths, or Unknown.
	UtilMilli int64
	// PeakMiB is the most that the processes of Attempt ever held together on this GPU,
	// contexts included. It is 0 when the provider does not track peaks.
	PeakMiB int64
	// OOM says that an allocation of Attempt was refused on this GPU.
	OOM bool
}

// ProcessKinds is a set of the ways in which a process uses a GPU.
type ProcessKinds uint8

// The ways to use a GPU.
const (
	Compute ProcessKinds = 1 << iota
	Graphics
	MPSClient
)

// Usage is the state of one GPU at this instant.
type Usage struct {
	UUID string
	// UsedMiB is memory held by processes. It includes the driver's reserve only if
	// WithReserve is set: old drivers do not separate the two.
	UsedMiB     int64
	WithReserve bool
	// UtilMilli is in thousandths of the GPU, Unknown when not supported.
	UtilMilli int64
	PowerW    int64 // Unknown when not supported
	// TemperatureC is the temperature of the chip, 0 when unknown.
	TemperatureC int64
	// MemActivityMilli is the part of the last moment in which the GPU's memory was read or
	// written, in thousandths. EnergyMJ is the energy that the GPU has used since the
	// driver was loaded, in millijoules. Unknown when not supported.
	MemActivityMilli, EnergyMJ int64
	// Processes is ordered by PID.
	Processes []Process
}

// Grant is what an attempt may use. Granting is idempotent: after a restart the agent
// grants again what it adopts.
type Grant struct {
	Attempt string
	// UID is the user that the attempt runs as. Providers that deal with the job's
	// processes (sim) serve only this user under the grant, besides root and the agent's
	// own user.
	UID   uint32
	Cards []GrantCard
}

// GrantCard is the part of a Grant on one GPU.
type GrantCard struct {
	UUID string
	// MemMiB is the share of memory, including the CUDA context of each of the attempt's
	// processes. Milli is the share of compute in thousandths.
	MemMiB, Milli int64
	// GrantedMiB is set if the share was cut to what the attempt uses: it may hold this
	// much while that memory is promised to no other attempt.
	GrantedMiB int64
	// Exclusive means that no other attempt has a grant on the GPU, and that MemMiB caps
	// nothing.
	Exclusive bool
}

// Account is what an attempt has used of one GPU since it was admitted.
type Account struct {
	UUID string
	// MemMiB is held now, PeakMiB is the most held at one time; contexts included.
	MemMiB, PeakMiB int64
	// Busy is the integral of utilization over time: a second at 40 % counts
	// 400 ms. Busy/Elapsed is the mean utilization.
	Busy, Elapsed time.Duration
	OOM           bool
}

// Provider reports the GPUs of a node and prepares them for attempts. Calls
// are safe for concurrent use.
type Provider interface {
	// Inventory returns every GPU that it could read in index order, and an error that
	// joins those of the others: both may be non-empty.
	Inventory(ctx context.Context) ([]Card, error)
	// Usage returns one entry per GPU that it could read, followed by one for each instance
	// if in MIG mode; errors as in Inventory.
	Usage(ctx context.Context) ([]Usage, error)
	// Admit prepares the GPUs of g before its attempt starts and returns the environment
	// that the attempt needs. Equal grants get equal answers. Errors wrap ErrUnknownCard or
	// ErrOvercommit.
	Admit(ctx context.Context, g Grant) (env []string, err error)
	// Retire ends a grant. Retiring an unknown attempt does nothing.
	Retire(ctx context.Context, attempt string) error
	Close() error
}

// Accountant is a Provider with exact accounting for each attempt. With other providers,
// the agent samples Usage.
type Accountant interface {
	// Account returns one entry per GPU of the attempt's grant, in the order of the grant.
	// The accounts of an attempt exist until it is retired.
	Account(ctx context.Context, attempt string) ([]Account, error)
}

// Regranter is a Provider that enforces shares itself, and so must be told when a share
// changes.
type Regranter interface {
	// Regrant changes the shares of an admitted attempt on the GPUs that it has; it keeps
	// what it holds. It is no error if the attempt is not admitted yet: it will be, with
	// its newest shares. Other errors wrap ErrOvercommit, and change nothing.
	Regrant(ctx context.Context, g Grant) error
}

// Strays returns the processes of u that were not started here through Berth, and the
// memory that they hold. Unknown memory counts as zero.
func (u *Usage) Strays() (procs []Process, memMiB int64) {
	for _, p := range u.Processes {
		if p.Stray {
			procs = append(procs, p)
			memMiB += max(0, p.MemMiB)
		}
	}
	return procs, memMiB
}

// Validate checks g by itself, without looking at any GPU.
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
