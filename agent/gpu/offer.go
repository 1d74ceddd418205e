package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Offer lists the GPUs of a node that Berth may use, each by its UUID, its PCI address, or
// its index or a range of indices as shown by nvidia-smi; empty means all. The others
// belong to another scheduler: Berth neither offers nor watches them.
type Offer []string

// Check returns what is wrong with an item.
func (o Offer) Check(item string) error {
	if _, _, ok := indices(item); ok {
		return nil
	}
	bad := strings.IndexFunc(item, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-:._", r))
	})
	if len(item) < 4 || len(item) > 80 || bad >= 0 {
		return fmt.Errorf("is %.60q, want a card's UUID, its PCI address such as 3b:00.0, or an index such as 2 or 4-7", item)
	}
	return nil
}

// Holds reports whether Berth may use the GPU.
func (o Offer) Holds(c *Card) bool {
	return len(o) == 0 || slices.ContainsFunc(o, func(item string) bool { return Names(item, c) })
}

// Names reports whether an item refers to the GPU.
func Names(item string, c *Card) bool {
	if from, to, ok := indices(item); ok {
		return c.Index >= from && c.Index <= to
	}
	if strings.Contains(item, ":") {
		return c.PCI != "" && shortPCI(item) == shortPCI(c.PCI)
	}
	return strings.EqualFold(item, c.UUID)
}

// shortPCI returns an address in lower case, without its domain if that is 0.
func shortPCI(s string) string {
	s = strings.ToLower(s)
	if domain, rest, ok := strings.Cut(s, ":"); ok && strings.Count(s, ":") == 2 {
		if strings.Trim(domain, "0") == "" {
			return rest
		}
		return strings.TrimLeft(domain, "0") + ":" + rest
	}
	return s
}

// indices parses 3 and 4-7.
func indices(item string) (from, to int, ok bool) {
	a, b, ranged := strings.Cut(item, "-")
	if !ranged {
		b = a
	}
	from, err := strconv.Atoi(a)
	to, err2 := strconv.Atoi(b)
	if err != nil || err2 != nil || from < 0 || to < from || to > 255 || a[0] == '+' || b[0] == '+' {
		return 0, 0, false
	}
	return from, to, true
}
