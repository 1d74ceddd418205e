package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// printJSON writes v with two spaces of indent. HTML is not escaped, what
// could steer a terminal is, and bytes that are not UTF-8 become U+FFFD.
func printJSON(e *Env, v any) error {
	raw, err := marshalJSON(v)
	if err != nil {
		return err
	}
	e.Printf("%s", unicodeEscapes(string(raw), pairs16))
	return nil
}

func marshalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
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
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && strings.ContainsFunc(n.Value, func(r rune) bool { return !shown(r) }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		block(c)
	}
}

// unicodeEscapes writes what shown refuses, other than ASCII that the encoders
// deal with, as \uXXXX, and beyond 16 bits as the format has it.
func unicodeEscapes(s string, beyond func(rune) string) string {
	steers := func(r rune) bool { return r >= 0x7f && !shown(r) }
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
