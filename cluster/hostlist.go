package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"unicode"
)

// AllNodes is the host list of every node.
const AllNodes = "ALL"

// Bounds of host lists.
const (
	MaxHostList  = 8 << 10 // bytes
	MaxHostNames = 16384
)

// HostList is a set of node names in Slurm's syntax: gpu[01-04,07],n1. A name may
// contain several brackets; the width of a range's first number is kept. The
// meaning of a text never changes, since only the text is stored. A list's memory
// is proportional to the length of its text, not to the number of nodes. It is safe
// for concurrent use. The zero value is empty.
type HostList struct {
	text string
	all  bool
	set  *hostSet
}

// hostSet is a parsed text, without the names themselves.
type hostSet struct {
	plain    []uint16    // offsets of names without brackets in the text, sorted by name
	items    []hostItem  // those with brackets
	brackets []hostRange // of all items, concatenated
	spans    []hostSpan  // of all brackets, those of one bracket sorted and disjoint
	made     int         // number of names, counting duplicates
	distinct atomic.Int64
}

// hostItem is a part of the text with brackets: its start, its end and its first
// bracket.
type hostItem struct {
	at, end uint16
	first   uint32
}

// hostRange is the range of spans of one bracket.
type hostRange struct{ from, to uint32 }

// hostSpan packs, from the high bits down, the width of numbers, the first number
// and how many follow it, so that spans sort by width and then by number.
type hostSpan uint64

const (
	spanRestBits  = 20
	spanFirstBits = 30
)

func newHostSpan(width, lo, hi int) hostSpan {
	return hostSpan(width)<<(spanRestBits+spanFirstBits) | hostSpan(lo)<<spanRestBits | hostSpan(hi-lo)
}

func (s hostSpan) width() int { return int(s >> (spanRestBits + spanFirstBits)) }
func (s hostSpan) lo() int    { return int(s>>spanRestBits) & (1<<spanFirstBits - 1) }
func (s hostSpan) hi() int    { return s.lo() + int(s&(1<<spanRestBits-1)) }

// ParseHostList parses a host list. The error is an *Error of CodeInvalid.
func ParseHostList(text string) (HostList, error) {
	text = strings.TrimSpace(text)
	if strings.EqualFold(text, AllNodes) {
		return HostList{text: AllNodes, all: true}, nil
	}
	h := HostList{text: text, set: &hostSet{}}
	if text == "" || len(text) > MaxHostList {
		return HostList{}, Errorf(CodeInvalid, "nodes: %d bytes, want 1 to %d; give a host list such as gpu[01-04],n7, or %s", len(text), MaxHostList, AllNodes)
	}
	at := 0
	items, err := splitOutside(text)
	if err != nil {
		return HostList{}, err
	}
	for _, item := range items {
		if err := h.set.add(at, item); err != nil {
			return HostList{}, err
		}
		if h.set.made > MaxHostNames {
			return HostList{}, Errorf(CodeInvalid, "nodes: more than %d names; write %s, or make several partitions", MaxHostNames, AllNodes)
		}
		at += len(item) + 1
	}
	slices.SortFunc(h.set.plain, func(a, b uint16) int { return cmp.Compare(h.plainAt(a), h.plainAt(b)) })
	return h, nil
}

// plainAt returns the name without brackets at an offset.
func (h *HostList) plainAt(at uint16) string {
	name, _, _ := strings.Cut(h.text[at:], ",")
	return strings.TrimSpace(name)
}

// splitOutside splits text at commas outside brackets.
func splitOutside(text string) ([]string, error) {
	var out []string
	open, from := false, 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '[' && open, c == ']' && !open:
			return nil, Errorf(CodeInvalid, "nodes: %q at byte %d of %s is unmatched", c, i, QuoteShort(text))
		case c == '[':
			open = true
		case c == ']':
			open = false
		case c == ',' && !open:
			out, from = append(out, text[from:i]), i+1
		}
	}
	if open {
		return nil, Errorf(CodeInvalid, "nodes: %s lacks a closing bracket", QuoteShort(text))
	}
	return append(out, text[from:]), nil
}

// add adds the part of the text that begins at offset at.
func (s *hostSet) add(at int, part string) error {
	at += len(part) - len(strings.TrimLeftFunc(part, unicode.IsSpace))
	part = strings.TrimSpace(part)
	it := hostItem{uint16(at), uint16(at + len(part)), uint32(len(s.brackets))}
	n, longest := 1, len(part) // number of names and length of the longest
	for rest := part; ; {
		before, after, bracket := strings.Cut(rest, "[")
		for k := range len(before) {
			// The rule is that of CheckName.
			if c := before[k]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || (c == '.' || c == '_' || c == '-') && (k > 0 || len(rest) < len(part))) {
				return Errorf(CodeInvalid, "nodes: %v", CheckName("node", before))
			}
		}
		if !bracket {
			break
		}
		var inside string
		inside, rest, _ = strings.Cut(after, "]")
		made, digits, err := s.addBracket(inside)
		if err != nil {
			return err
		}
		n, longest = min(n*made, MaxHostNames+1), longest-len(inside)-2+digits
	}
	if longest < 1 || longest > MaxNameLen {
		return Errorf(CodeInvalid, "nodes: node %s: must have 1 to %d characters", QuoteShort(part), MaxNameLen)
	}
	if s.made += n; len(s.brackets) == int(it.first) {
		s.plain = append(s.plain, it.at)
	} else {
		s.items = append(s.items, it)
	}
	return nil
}

// addBracket adds the contents of a bracket. It returns the number of numbers,
// counting duplicates, and the digits of the longest.
func (s *hostSet) addBracket(inside string) (made, digits int, err error) {
	from := len(s.spans)
	for span := range strings.SplitSeq(inside, ",") {
		lo, hi, width, err := parseSpan(strings.TrimSpace(span))
		if err != nil {
			return 0, 0, err
		}
		made = min(made+hi-lo+1, MaxHostNames+1)
		digits = max(digits, width)
		for n, d := hi, 0; n > 0; n /= 10 {
			d++
			digits = max(digits, d)
		}
		s.spans = append(s.spans, newHostSpan(width, lo, hi))
	}
	mine := s.spans[from:]
	slices.Sort(mine)
	k := 0
	for _, sp := range mine[1:] {
		if p := mine[k]; p.width() == sp.width() && sp.lo() <= p.hi()+1 && max(p.hi(), sp.hi())-p.lo() < 1<<spanRestBits {
			mine[k] = newHostSpan(p.width(), p.lo(), max(p.hi(), sp.hi()))
			continue
		}
		k++
		mine[k] = sp
	}
	s.spans = s.spans[:from+k+1]
	s.brackets = append(s.brackets, hostRange{uint32(from), uint32(len(s.spans))})
	return made, digits, nil
}

// parseSpan parses 7 or 01-04.
func parseSpan(s string) (lo, hi, width int, err error) {
	a, b, dash := strings.Cut(s, "-")
	if !dash {
		b = a
	}
	bad := func() (int, int, int, error) {
		return 0, 0, 0, Errorf(CodeInvalid, "nodes: %s in brackets: want a number or a range such as 01-04", QuoteShort(s))
	}
	lo, ok := digits(a)
	hi, ok2 := digits(b)
	if !ok || !ok2 || hi < lo || hi-lo >= MaxHostNames {
		return bad()
	}
	return lo, hi, len(a), nil
}

// digits parses a number of at most nine digits.
func digits(s string) (n int, ok bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + int(s[i]-'0')
		if i == 9 {
			return 0, false
		}
	}
	return n, s != ""
}

// String returns the list as it was written.
func (h HostList) String() string { return h.text }

// Equal reports whether two lists have the same text.
func (h HostList) Equal(o HostList) bool { return h.text == o.text }

// Holds reports whether the list contains a node.
func (h HostList) Holds(id NodeID) bool {
	switch {
	case h.all:
		return true
	case h.set == nil || len(id) > MaxNameLen:
		return false
	}
	name := string(id)
	if _, found := slices.BinarySearchFunc(h.set.plain, name, func(at uint16, name string) int { return cmp.Compare(h.plainAt(at), name) }); found {
		return true
	}
	for i := range h.set.items {
		if h.holds(&h.set.items[i], name) {
			return true
		}
	}
	return false
}

// holds reports whether a part with brackets contains name. Since numbers may
// differ in length, the possible positions in name are kept as a bit set.
func (h *HostList) holds(it *hostItem, name string) bool {
	at, rest := uint64(1), h.text[it.at:it.end]
	for b := it.first; ; b++ {
		before, after, bracket := strings.Cut(rest, "[")
		next := uint64(0)
		for k := range len(name) + 1 {
			if at>>k&1 != 0 && strings.HasPrefix(name[k:], before) {
				next |= 1 << (k + len(before))
			}
		}
		if at = next; at == 0 || !bracket {
			return at>>len(name)&1 != 0
		}
		_, rest, _ = strings.Cut(after, "]")
		spans := h.set.spans[h.set.brackets[b].from:h.set.brackets[b].to]
		next = 0
		for k := range len(name) {
			for n := 1; at>>k&1 != 0 && n <= 9 && k+n <= len(name) && name[k+n-1] >= '0' && name[k+n-1] <= '9'; n++ {
				if holdsNumber(spans, name[k:k+n]) {
					next |= 1 << (k + n)
				}
			}
		}
		at = next
	}
}

// holdsNumber reports whether spans contain the number that digits spell, at that
// width.
func holdsNumber(spans []hostSpan, digits string) bool {
	n := 0
	for _, c := range []byte(digits) {
		n = 10*n + int(c-'0')
	}
	for width := len(digits); width > 0; width-- {
		if width < len(digits) && digits[0] == '0' {
			return false
		}
		i := sort.Search(len(spans), func(i int) bool { return spans[i]>>spanRestBits > newHostSpan(width, n, n)>>spanRestBits })
		if i > 0 && spans[i-1].width() == width && n <= spans[i-1].hi() {
			return true
		}
	}
	return false
}

// Len returns how many nodes the list names, 0 for all nodes.
func (h HostList) Len() int {
	if h.set == nil {
		return 0
	}
	if n := h.set.distinct.Load(); n > 0 {
		return int(n)
	}
	n := len(h.Names())
	h.set.distinct.Store(int64(n))
	return n
}

// parts returns the number of parts with brackets, to find out whether names are
// written more than once.
func (h HostList) parts() int {
	if h.set == nil {
		return 0
	}
	return len(h.set.items)
}

func (h HostList) again() int {
	if h.set == nil {
		return 0
	}
	return h.set.made - h.Len()
}

// Names returns the names in the order in which they were written, nil for all
// nodes. Each call makes a new slice of up to MaxHostNames.
func (h HostList) Names() []NodeID {
	if h.set == nil {
		return nil
	}
	var order []NodeID
	seen := make(map[NodeID]struct{}, h.set.made)
	items, _ := splitOutside(h.text) // cannot fail: it was parsed before
	for _, item := range items {
		expand("", strings.TrimSpace(item), func(name string) {
			id := NodeID(name)
			if _, there := seen[id]; !there {
				seen[id] = struct{}{}
				order = append(order, id)
			}
		})
	}
	return order
}

// expand calls made with each name that begins with done and continues with rest.
func expand(done, rest string, made func(string)) {
	before, after, bracket := strings.Cut(rest, "[")
	if done += before; !bracket {
		made(done)
		return
	}
	inside, after, _ := strings.Cut(after, "]")
	for span := range strings.SplitSeq(inside, ",") {
		lo, hi, width, err := parseSpan(strings.TrimSpace(span))
		for n := lo; err == nil && n <= hi; n++ {
			expand(done+fmt.Sprintf("%0*d", width, n), after, made)
		}
	}
}
