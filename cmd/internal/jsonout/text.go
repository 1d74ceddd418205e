package jsonout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/escape"
)

// Marshal returns JSON without white space or HTML escapes. What could steer
// a terminal is not escaped yet.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Escaped escapes what could steer a terminal in JSON.
func Escaped(raw []byte) []byte {
	if !slices.ContainsFunc(raw, func(c byte) bool { return c >= 0x7f }) {
		return raw
	}
	return []byte(UnicodeEscapes(string(raw), pairs16))
}

// newline is a line end and the indentation of the next line, up to any common depth.
var newline = "\n" + strings.Repeat("  ", 16)

func appendLine(dst []byte, depth int) []byte {
	n := 1 + 2*depth
	dst = append(dst, newline[:min(n, len(newline))]...)
	for range n - len(newline) {
		dst = append(dst, ' ')
	}
	return dst
}

// Line returns a line end and the indentation of the next line.
func Line(depth int) string { return string(appendLine(nil, depth)) }

// AppendIndented appends JSON without white space as json.Indent would write
// it, two spaces per level, with depth extra levels at the start of lines.
func AppendIndented(dst, raw []byte, depth int) []byte {
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; c {
		case '{', '[':
			dst = append(dst, c)
			if next := raw[i+1]; next == '}' || next == ']' {
				dst = append(dst, next)
				i++
				continue
			}
			depth++
			dst = appendLine(dst, depth)
		case '}', ']':
			depth--
			dst = append(appendLine(dst, depth), c)
		case ',':
			dst = appendLine(append(dst, c), depth)
		case ':':
			dst = append(dst, ": "...)
		default:
			end := scalarEnd(raw, i)
			dst = append(dst, raw[i:end]...)
			i = end - 1
		}
	}
	return dst
}

// scalarEnd returns the end of the text, number or word that begins at i.
func scalarEnd(raw []byte, i int) int {
	if raw[i] != '"' {
		for i++; i < len(raw) && raw[i] != ',' && raw[i] != '}' && raw[i] != ']'; i++ {
		}
		return i
	}
	for i++; raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// UnicodeEscapes writes what could steer a terminal, except ASCII that the
// encoders handle, as \uXXXX, and beyond 16 bits in the format's own way.
func UnicodeEscapes(s string, beyond func(rune) string) string {
	steers := func(r rune) bool { return r >= 0x7f && !escape.Shown(r) }
	if strings.IndexFunc(s, steers) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case steers(r) && r > 0xffff:
			b.WriteString(beyond(r))
		case steers(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// pairs16 is JSON's escape for characters beyond 16 bits.
func pairs16(r rune) string {
	r -= 0x10000
	return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
}
