package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// AllNodes is the host list of every node.
const AllNodes = "ALL"

// Bounds of host lists.
const (
	MaxHostList  = 8 << 10 // bytes
	MaxHostNames = 16384
)

// HostList is a set of node names, written as Slurm does: gpu[01-04,07],n1.
// Brackets may appear several times in a name; the width of the first number
// of a range is kept. What a text means never changes, since the text alone is
// stored. The zero value holds nothing.
type HostList struct {
	text  string
	all   bool
	names map[NodeID]struct{}
	order []NodeID
	made  int // names while it is read, also those that are there already
}

// ParseHostList reads a host list. The error is an *Error of CodeInvalid.
func ParseHostList(text string) (HostList, error) {
	text = strings.TrimSpace(text)
	if strings.EqualFold(text, AllNodes) {
		return HostList{text: AllNodes, all: true}, nil
	}
	h := HostList{text: text, names: map[NodeID]struct{}{}}
	if text == "" || len(text) > MaxHostList {
		return HostList{}, Errorf(CodeInvalid, "nodes: %d bytes, want 1 to %d; give a host list such as gpu[01-04],n7, or %s", len(text), MaxHostList, AllNodes)
	}
	items, err := splitOutside(text)
	if err != nil {
		return HostList{}, err
	}
	for _, item := range items {
		if err := h.expand("", strings.TrimSpace(item)); err != nil {
			return HostList{}, err
		}
	}
	return h, nil
}

// splitOutside splits at commas that are in no brackets.
func splitOutside(text string) ([]string, error) {
	var out []string
	open, from := false, 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '[' && open, c == ']' && !open:
			return nil, Errorf(CodeInvalid, "nodes: %q at byte %d of %s has no partner", c, i, quoteShort(text))
		case c == '[':
			open = true
		case c == ']':
			open = false
		case c == ',' && !open:
			out, from = append(out, text[from:i]), i+1
		}
	}
	if open {
		return nil, Errorf(CodeInvalid, "nodes: %s lacks a closing bracket", quoteShort(text))
	}
	return append(out, text[from:]), nil
}

// expand adds the names that begin with done and go on with rest.
func (h *HostList) expand(done, rest string) error {
	before, after, bracket := strings.Cut(rest, "[")
	if !bracket {
		name := done + rest
		if err := CheckName("node", name); err != nil {
			return Errorf(CodeInvalid, "nodes: %v", err)
		}
		if _, there := h.names[NodeID(name)]; !there {
			h.names[NodeID(name)] = struct{}{}
			h.order = append(h.order, NodeID(name))
		}
		if h.made++; h.made > MaxHostNames {
			return Errorf(CodeInvalid, "nodes: more than %d names; write %s, or make several partitions", MaxHostNames, AllNodes)
		}
		return nil
	}
	if done += before; len(done) > MaxNameLen {
		return Errorf(CodeInvalid, "nodes: name %s: must have 1 to %d characters", quoteShort(done), MaxNameLen)
	}
	inside, after, _ := strings.Cut(after, "]")
	for span := range strings.SplitSeq(inside, ",") {
		lo, hi, width, err := parseSpan(strings.TrimSpace(span))
		if err != nil {
			return err
		}
		for n := lo; n <= hi; n++ {
			if err := h.expand(done+fmt.Sprintf("%0*d", width, n), after); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseSpan reads 7 or 01-04.
func parseSpan(s string) (lo, hi, width int, err error) {
	a, b, dash := strings.Cut(s, "-")
	if !dash {
		b = a
	}
	bad := Errorf(CodeInvalid, "nodes: %s in brackets: want a number or a range such as 01-04", quoteShort(s))
	digits := func(s string) bool { return s != "" && len(s) <= 9 && strings.Trim(s, "0123456789") == "" }
	if !digits(a) || !digits(b) {
		return 0, 0, 0, bad
	}
	lo, err1 := strconv.Atoi(a)
	hi, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || hi < lo || hi-lo >= MaxHostNames {
		return 0, 0, 0, bad
	}
	return lo, hi, len(a), nil
}

// String returns the list as it was written.
func (h HostList) String() string { return h.text }

// Equal tells whether two lists were written alike.
func (h HostList) Equal(o HostList) bool { return h.text == o.text }

// Holds tells whether a node is in the list.
func (h HostList) Holds(id NodeID) bool {
	if h.all {
		return true
	}
	_, ok := h.names[id]
	return ok
}

// Names returns the names in the order in which they were written, nil for all
// nodes. It is not to be changed.
func (h HostList) Names() []NodeID { return h.order }
