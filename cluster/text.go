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
