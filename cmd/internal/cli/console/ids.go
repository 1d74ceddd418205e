package console

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/escape"
)

// How many jobs one command may name.
const (
	// MaxIDs is what the server allows in one request, and the longest range: a
	// mistyped one is stopped before it does harm.
	MaxIDs = 1000
	// MaxNamed is for commands that send several requests, as for xargs.
	MaxNamed = 100_000
)

// ParseIDs reads job ids: 12, 12,14, 12-20 or 12..20. All are read, and their
// number checked, before any is used. Repeated ids count once; the order stays.
func ParseIDs(args []string) ([]uint64, error) { return parseIDs(args, MaxIDs) }

func parseIDs(args []string, most int) ([]uint64, error) {
	var out []uint64
	seen := map[uint64]struct{}{}
	for _, arg := range args {
		for part := range strings.SplitSeq(arg, ",") {
			lo, hi, err := parseRange(part)
			if err != nil {
				return nil, err
			}
			if hi-lo >= MaxIDs || len(out)+int(hi-lo) >= most {
				if hi-lo < MaxIDs {
					return nil, Usagef("job range %q: at most %d jobs at once", part, most)
				}
				return nil, Usagef("job range %q: at most %d jobs in a range", part, MaxIDs)
			}
			for id := lo; id <= hi; id++ {
				if _, twice := seen[id]; !twice {
					seen[id] = struct{}{}
					out = append(out, id)
				}
			}
		}
	}
	return out, nil
}

func parseRange(s string) (lo, hi uint64, err error) {
	a, b, ranged := strings.Cut(s, "..")
	if !ranged && !strings.HasPrefix(s, "-") {
		a, b, ranged = strings.Cut(s, "-")
	}
	if lo, err = ParseID(a); err != nil {
		return 0, 0, err
	}
	if !ranged {
		return lo, lo, nil
	}
	if hi, err = ParseID(b); err != nil {
		return 0, 0, err
	}
	if hi < lo {
		return 0, 0, Usagef("job range %q: must not end before it begins", s)
	}
	return lo, hi, nil
}

// maxID keeps arithmetic on ranges far from overflow.
const maxID = 1 << 62

// ParseID reads one job id, 1 to 2^62.
func ParseID(s string) (uint64, error) {
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil || id == 0 || id > maxID || strconv.FormatUint(id, 10) != s {
		return 0, Usagef("job id %s: want a number as shown by berth queue, or a range such as 12-20", ShortQuote(s))
	}
	return id, nil
}

// ShortQuote quotes typed text on one short line.
func ShortQuote(s string) string { return escape.Quote(s) }

// IDRanges formats ids as cancel reads them: 3-5,9.
func IDRanges(ids []uint64) string {
	out := ""
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if out != "" {
			out += ","
		}
		out += fmt.Sprint(ids[i])
		if j > i {
			out += fmt.Sprintf("-%d", ids[j])
		}
		i = j + 1
	}
	return out
}

// IDList formats ids separated by commas.
func IDList(ids []uint64) string {
	var out []string
	for _, id := range ids {
		out = append(out, strconv.FormatUint(id, 10))
	}
	return strings.Join(out, ", ")
}
