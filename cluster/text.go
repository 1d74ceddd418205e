package cluster

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ClipText cuts s to n bytes of valid UTF-8.
func ClipText(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	for len(s) > n || !utf8.ValidString(s) {
		s = s[:min(n, len(s)-1)]
	}
	return s
}

// EditDistance is how many bytes must be added, left out or changed to make b of
// a. It takes time in the product of their lengths.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// LongerLimit reports whether a time limit is above another; 0 is none.
func LongerLimit(a, b time.Duration) bool { return b != 0 && (a == 0 || a > b) }

// TimeText writes a span as messages do, which is how people type one: 3d, 1d12h,
// 1h30m, 90s as 1m30s.
func TimeText(d time.Duration) string {
	const day = 24 * time.Hour
	switch days, rest := d/day, d%day; {
	case days <= 0:
		return short(d)
	case rest == 0:
		return fmt.Sprintf("%dd", days)
	default:
		return fmt.Sprintf("%dd%s", days, short(rest))
	}
}

// short writes a span without needless zeros.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
