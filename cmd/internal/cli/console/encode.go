package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/berth-scheduler/berth/cmd/internal/escape"
)

// printJSON writes v with two spaces of indent. HTML is not escaped, what
// could steer a terminal is, and bytes that are not UTF-8 become U+FFFD.
func printJSON(e *Env, v any) error {
	raw, err := marshalJSON(v)
	if err != nil {
		return err
	}
	_, _ = e.Out.Write(append(appendIndented(make([]byte, 0, 2*len(raw)), escapedJSON(raw), 0), '\n')) // errors stay with Out
	return nil
}

// marshalJSON returns JSON without white space.
func marshalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// escapedJSON escapes what could steer a terminal.
func escapedJSON(raw []byte) []byte {
	if !slices.ContainsFunc(raw, func(c byte) bool { return c >= 0x7f }) {
		return raw
	}
	return []byte(unicodeEscapes(string(raw), pairs16))
}

// newline is a line's end and the indent of the next one, of any depth that is common.
var newline = "\n" + strings.Repeat("  ", 16)

// appendIndented appends JSON that has no white space as json.Indent would write it,
// two spaces for each level and those of depth levels before what begins a line.
// json.Indent took half of the time of a list of ten thousand jobs.
func appendIndented(dst, raw []byte, depth int) []byte {
	line := func() {
		n := 1 + 2*depth
		dst = append(dst, newline[:min(n, len(newline))]...)
		for range n - len(newline) {
			dst = append(dst, ' ')
		}
	}
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
			line()
		case '}', ']':
			depth--
			line()
			dst = append(dst, c)
		case ',':
			dst = append(dst, c)
			line()
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

// scalarEnd is where the text, number or word that begins at i has ended.
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

// printYAML writes the same names in the same order as printJSON: JSON is
// YAML, so it is read back as nodes and printed in block style.
func printYAML(e *Env, v any) error {
	raw, err := marshalJSON(v)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(unicodeEscapes(string(raw), long32)), &n); err != nil {
		return err
	}
	block(&n)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&n); err != nil {
		return err
	}
	if err := enc.Close(); err != nil {
		return err
	}
	e.Printf("%s", unicodeEscapes(b.String(), long32))
	return nil
}

// block drops the flow style and needless quotes; the encoder quotes again
// what would read as something else than text. Text with characters to be
// escaped keeps the double quotes in which escapes mean something; line ends
// are among them, since the encoder's block literals do not always read back.
func block(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && strings.ContainsFunc(n.Value, func(r rune) bool { return !escape.Shown(r) }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		block(c)
	}
}

// unicodeEscapes writes what shown refuses, other than ASCII that the encoders
// deal with, as \uXXXX, and beyond 16 bits as the format has it.
func unicodeEscapes(s string, beyond func(rune) string) string {
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

// pairs16 is JSON's way for characters beyond 16 bits, long32 is YAML's.
func pairs16(r rune) string {
	r -= 0x10000
	return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
}

func long32(r rune) string { return fmt.Sprintf(`\U%08x`, r) }
