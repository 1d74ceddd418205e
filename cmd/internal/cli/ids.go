package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxIDs is how many jobs one command may name; the server allows no more in
// one request, and a mistyped range is stopped before it does harm.
const maxIDs = 1000

// parseIDs reads job ids: 12, 12,14, 12-20 or 12..20. All are read, and their
// number checked, before any is used. Repeated ids count once; the order stays.
func parseIDs(args []string) ([]uint64, error) {
	var out []uint64
	for _, arg := range args {
		for part := range strings.SplitSeq(arg, ",") {
			lo, hi, err := parseRange(part)
			if err != nil {
				return nil, err
			}
			if hi-lo >= maxIDs || len(out)+int(hi-lo) >= maxIDs {
				return nil, Usagef("job range %q: at most %d jobs at once", part, maxIDs)
			}
			for id := lo; id <= hi; id++ {
				if !slices.Contains(out, id) {
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
	if lo, err = parseID(a); err != nil {
		return 0, 0, err
	}
	if !ranged {
		return lo, lo, nil
	}
	if hi, err = parseID(b); err != nil {
		return 0, 0, err
	}
	if hi < lo {
		return 0, 0, Usagef("job range %q: ends before it begins", s)
	}
	return lo, hi, nil
}

// maxID keeps arithmetic on ranges far from overflow.
const maxID = 1 << 62

func parseID(s string) (uint64, error) {
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil || id == 0 || id > maxID || strconv.FormatUint(id, 10) != s {
		return 0, Usagef("job id %s: want a number from 1 as berth queue shows it, or a range such as 12-20", shortQuote(s))
	}
	return id, nil
}

// shortQuote quotes what was typed on one short line.
func shortQuote(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%q… (%d bytes)", s[:40], len(s))
	}
	return strconv.Quote(s)
}

// idRanges writes ids as cancel reads them: 3-5,9.
func idRanges(ids []uint64) string {
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

func idList(ids []uint64) string {
	var out []string
	for _, id := range ids {
		out = append(out, strconv.FormatUint(id, 10))
	}
	return strings.Join(out, ", ")
}
