// Package health tells which cards of a node are not sound: from the numbered
// faults that NVIDIA's driver reports (Xids), through NVML and through the
// kernel's log, from what the PCI bus and the driver show, and from the cards'
// own counts of bad memory. A card can die without a word in any one of these.
package health

import (
	"fmt"
	"slices"
	"strings"
)

// Action is what becomes of a card, and of what runs on it, after a fault.
type Action uint8

// The actions.
const (
	// Record notes the fault on the attempts on the card: the application is at
	// fault, and the card is sound.
	Record Action = iota + 1
	// Drain keeps new attempts from the card; those on it go on. Should one
	// fail, the hardware is to blame.
	Drain
	// End drains the card and ends what is on it: it can work no more.
	End
)

// String returns the word for it in configurations.
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

// ParseAction reads application, drain or end.
func ParseAction(s string) (Action, error) {
	for a := Record; a <= End; a++ {
		if s == a.String() {
			return a, nil
		}
	}
	return 0, fmt.Errorf("%.40q is no action after an Xid; want application, drain or end", s)
}

// Xid is what is known of one number.
type Xid struct {
	Code   int
	Action Action
	Text   string // what it means, in a few words
	// Known is false for a number that no table has: it drains, and an
	// administrator should look.
	Known bool
}

// known is the table: what applications cause by themselves and what asks for
// a reset or a new card, after the driver's documentation of Xids and after
// what device plugins take for harmless.
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

// Table says what each Xid leads to. The zero value is the table in code. It
// is immutable.
type Table struct{ override map[int]Action }

// NewTable returns the table in code with the actions for some numbers put in
// place of those there.
func NewTable(override map[int]Action) Table { return Table{override: override} }

// Lookup returns what is known of a number. One that no table has drains.
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

// All returns the whole table by number, for people.
func (t Table) All() []Xid {
	codes := map[int]struct{}{}
	for _, k := range known {
		codes[k.Code] = struct{}{}
	}
	for c := range t.override {
		codes[c] = struct{}{}
	}
	var out []Xid
	for c := range codes {
		out = append(out, t.Lookup(c))
	}
	slices.SortFunc(out, func(a, b Xid) int { return a.Code - b.Code })
	return out
}

// String returns "Xid 79: the GPU fell off the bus".
func (x Xid) String() string {
	return strings.TrimSuffix(fmt.Sprintf("Xid %d: %s", x.Code, x.Text), ": ")
}
