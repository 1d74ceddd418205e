// Package escape makes text that others chose safe to display.
package escape

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text makes visible what could steer a terminal: control characters,
// characters that change the direction of writing, and bytes that are not
// UTF-8.
func Text(s string) string {
	clean := true
	for _, r := range s {
		if r == utf8.RuneError || !Shown(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case !Shown(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case !Shown(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// Shown reports whether r may reach a terminal unchanged. The zero-width
// joiner may, since emoji use it.
func Shown(r rune) bool {
	return r == '\u200d' || unicode.IsGraphic(r) && !unicode.Is(unicode.Cf, r)
}

// Quote quotes typed text on one short line.
func Quote(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%q… (%d bytes)", s[:40], len(s))
	}
	return strconv.Quote(s)
}
