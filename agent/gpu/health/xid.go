// Package health finds the faulty GPUs of a node: from the numbered faults that NVIDIA's driver
// reports (Xids), through NVML and through the kernel log, from what the PCI bus and the driver
// show, and from the GPUs' own counts of bad memory. A GPU can die without a trace in any one
// of these.
package health

import (
	"fmt"
	"slices"
	"strings"
)

// Action is what happens to a GPU, and to what runs on it, after a fault.
type Action uint8

// The actions.
const (
	// Record notes the fault on the attempts on the GPU: the application is at fault, and the
	// GPU is healthy.
	Record Action = iota + 1
	// Drain keeps new attempts off the GPU; those on it continue. If one fails, the hardware is
	// to blame.
	Drain
	// End drains the GPU and ends what is on it: it can no longer work.
	End
)

// String returns the action's name in configurations.
func (a Action) String() string {
	switch a {
	case Record:
		return "application"
	case Drain:
		return "drain"
	case End:
		return "end"
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// ParseAction parses application, drain or end.
func ParseAction(s string) (Action, error) {
	for a := Record; a <= End; a++ {
		if s == a.String() {
			return a, nil
		}
	}
	return 0, fmt.Errorf("%.40q is no action after an Xid; want application, drain or end", s)
}

// Xid is what is known of one Xid number.
type Xid struct {
	Code   int
	Action Action
	Text   string // what it means, in a few words
	// Known is false for a number in no table: it drains, and an administrator should look.
	Known bool
}

// known is the built-in table: what applications cause by themselves and what requires a reset
// or a new GPU, according to the driver's documentation of Xids and to what device plugins
// consider harmless.
var known = [...]Xid{
	{13, Record, "graphics engine exception, mostly a fault of the program", true},
	{31, Record, "memory page fault, mostly a fault of the program", true},
	{43, Record, "the program stopped processing after a fault of its own", true},
	{45, Record, "work was removed, as when a program is ended", true},
	{48, End, "double bit ECC error", true},
	{63, Drain, "a row of the memory is to be remapped", true},
	{64, Drain, "a row of the memory could not be remapped", true},
	{68, Record, "video processor exception", true},
	{74, Drain, "NVLink error", true},
	{79, End, "the GPU fell off the bus", true},
	{92, Drain, "many single bit ECC errors", true},
	{94, Drain, "contained ECC error", true},
	{95, End, "uncontained ECC error", true},
	{109, Record, "context switch timed out, mostly a fault of the program", true},
	{119, End, "the GPU's own processor did not answer in time", true},
	{120, End, "error of the GPU's own processor", true},
	{140, Drain, "ECC error that was not recovered", true},
}

// Table maps each Xid to its action. The zero value is the built-in table. It is immutable.
type Table struct{ override map[int]Action }

// NewTable returns the built-in table with the actions for some numbers replaced.
func NewTable(override map[int]Action) Table { return Table{override: override} }

// Lookup returns what is known of a number. One in no table drains.
func (t Table) Lookup(code int) Xid {
	x := Xid{Code: code, Action: Drain, Text: "not in the table of known Xids"}
	if i := slices.IndexFunc(known[:], func(k Xid) bool { return k.Code == code }); i >= 0 {
		x = known[i]
	}
	if a, ok := t.override[code]; ok {
		x.Action, x.Known = a, true
	}
	return x
}

// String returns "Xid 79: the GPU fell off the bus".
func (x Xid) String() string {
	return strings.TrimSuffix(fmt.Sprintf("Xid %d: %s", x.Code, x.Text), ": ")
}
