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

// HostList is a set of node names, written as Slurm does: gpu[01-04,07],n1.
// Brackets may appear several times in a name; the width of the first number
// of a range is kept. What a text means never changes, since the text alone is
// stored. A list takes memory as its text is long, not as it names nodes; it may
// be used from any goroutine. The zero value holds nothing.
type HostList struct {
	text string
	all  bool
	set  *hostSet
}

// hostSet is what a text says, without the names themselves.
type hostSet struct {
	plain    []uint16    // where names without brackets begin in the text, by name
	items    []hostItem  // those with brackets
	brackets []hostRange // of all items, one behind the other
	spans    []hostSpan  // of all brackets, each bracket's sorted and apart
	made     int         // names, those that are there already counted again
	distinct atomic.Int64
}

// hostItem is a part of the text with brackets: where it begins and ends, and its
// first bracket.
type hostItem struct {
	at, end uint16
	first   uint32
}

// hostRange is the spans of one bracket.
type hostRange struct{ from, to uint32 }

// hostSpan is the width of numbers, the first, and how many follow it, from the
// high bits down, so that spans sort by width and then by number.
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

// ParseHostList reads a host list. The error is an *Error of CodeInvalid.
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

// plainAt is the name without brackets that begins at an offset.
func (h *HostList) plainAt(at uint16) string {
	name, _, _ := strings.Cut(h.text[at:], ",")
	return strings.TrimSpace(name)
}

// splitOutside splits at commas that are in no brackets.
func splitOutside(text string) ([]string, error) {
	var out []string
	open, from := false, 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '[' && open, c == ']' && !open:
			return nil, Errorf(CodeInvalid, "nodes: %q at byte %d of %s has no partner", c, i, QuoteShort(text))
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

// add takes a part of the text that begins at an offset.
func (s *hostSet) add(at int, part string) error {
	at += len(part) - len(strings.TrimLeftFunc(part, unicode.IsSpace))
	part = strings.TrimSpace(part)
	it := hostItem{uint16(at), uint16(at + len(part)), uint32(len(s.brackets))}
	n, longest := 1, len(part) // of its names
	for rest := part; ; {
		before, after, bracket := strings.Cut(rest, "[")
		for k := range len(before) {
			// As in CheckName, which says it.
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

// addBracket adds what stands in a bracket: how many numbers, also those that are
// there twice, and how many digits the longest has.
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

// parseSpan reads 7 or 01-04.
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

// digits reads a number of at most nine digits.
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

// Equal reports whether two lists were written alike.
func (h HostList) Equal(o HostList) bool { return h.text == o.text }

// Holds reports whether a node is in the list.
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

// holds reports whether a name is one of a part with brackets. Where the name may go
// on, of which some numbers could be longer or shorter, is kept as a set of bits.
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

// holdsNumber reports whether digits are a number of spans as it is written there.
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

// Len is how many nodes the list names, 0 for all nodes.
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

// parts is how many parts with brackets there are, again how many names are written
// more than once.
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
// nodes. They are made anew by each call, up to MaxHostNames.
func (h HostList) Names() []NodeID {
	if h.set == nil {
		return nil
	}
	var order []NodeID
	seen := make(map[NodeID]struct{}, h.set.made)
	items, _ := splitOutside(h.text) // it was read before
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

// expand calls made with the names that begin with done and go on with rest.
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
