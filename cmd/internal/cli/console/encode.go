package console

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/berth-scheduler/berth/cmd/internal/escape"
	"github.com/berth-scheduler/berth/cmd/internal/jsonout"
)

// printJSON writes v indented by two spaces. HTML is not escaped; whatever
// could steer a terminal is, and bytes that are not UTF-8 become U+FFFD.
func printJSON(e *Env, v any) error {
	text, err := jsonout.NewEncoder(0).Append(nil, v)
	if err != nil {
		return err
	}
	_, _ = e.Out.Write(append(text, '\n')) // errors stay with Out
	return nil
}

// printYAML writes the same names in the same order as printJSON: JSON is
// YAML, so it is parsed into nodes and printed in block style.
func printYAML(e *Env, v any) error {
	raw, err := jsonout.Marshal(v)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(jsonout.UnicodeEscapes(string(raw), long32)), &n); err != nil {
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
	e.Printf("%s", jsonout.UnicodeEscapes(b.String(), long32))
	return nil
}

// block drops the flow style and needless quotes; the encoder again quotes
// anything that would read as something other than text. Text with characters
// to be escaped keeps the double quotes in which escapes have meaning; line
// ends are among them, since the encoder's block literals do not always read
// back.
func block(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && strings.ContainsFunc(n.Value, func(r rune) bool { return !escape.Shown(r) }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		block(c)
	}
}

// long32 is YAML's escape for characters beyond 16 bits.
func long32(r rune) string { return fmt.Sprintf(`\U%08x`, r) }
