package cluster

import (
	"strings"
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
