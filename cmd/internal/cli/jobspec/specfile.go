package jobspec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// Limits on spec files.
const (
	MaxSpecBytes = 64 << 10
	maxSpecDepth = 5
)

// readSpecFile fills r from a YAML file, or from standard input for "-".
func readSpecFile(e *console.Env, r *Request, name string) (command []string, err error) {
	var raw []byte
	if name == "-" {
		name = "standard input"
		raw, err = io.ReadAll(io.LimitReader(e.TypedIn(), MaxSpecBytes+1))
	} else {
		raw, err = readSmallFile(name)
	}
	if err != nil && console.Interrupted(err) {
		return nil, err
	}
	if err != nil {
		return nil, console.Usagef("spec file: %w", err)
	}
	if len(raw) > MaxSpecBytes {
		return nil, console.Usagef("%s: larger than the limit of %d KiB for a spec file", name, MaxSpecBytes>>10)
	}
	command, err = ParseSpec(r, raw)
	if err != nil {
		return nil, console.Usagef("%s:%w", name, err)
	}
	return command, nil
}

// readSmallFile reads at most one byte more than the limit, and only from a
// regular file: a FIFO would hang, /dev/zero would never end.
func readSmallFile(name string) ([]byte, error) {
	f, err := console.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxSpecBytes+1))
}

// lineError returns an error at a position in the file.
func lineError(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%d:%d: %w", n.Line, n.Column, fmt.Errorf(format, args...))
}

// ParseSpec reads one YAML mapping strictly: known keys once each, no
// anchors, one document, and no ambiguous scalars.
func ParseSpec(r *Request, raw []byte) (command []string, err error) {
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	if bytes.HasPrefix(raw, []byte("\xff\xfe")) || bytes.HasPrefix(raw, []byte("\xfe\xff")) || bytes.IndexByte(raw, 0) >= 0 || !utf8.Valid(raw) {
		return nil, errors.New("1:1: is not UTF-8 text; save the file as UTF-8")
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("1:1: is empty; it needs at least the key command")
	case err != nil:
		return nil, yamlError(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, yamlError(err)
		}
		return nil, errors.New("1:1: holds more than one document; one file describes one job")
	}
	root := doc.Content[0]
	if err := checkNode(root, 0); err != nil {
		return nil, err
	}
	if root.Kind != yaml.MappingNode {
		return nil, lineError(root, "must have keys and values, such as command: [python, train.py]")
	}
	return r.applyMapping(root)
}

var yamlLine = pattern(`^yaml: (?:line (\d+): )?`)

// yamlError rewrites the parser's error as "line:column: what".
func yamlError(err error) error {
	msg := strings.ReplaceAll(err.Error(), "\n", " ")
	m := yamlLine().FindStringSubmatch(msg)
	line := "1"
	if m != nil {
		msg = msg[len(m[0]):]
		if m[1] != "" {
			line = m[1]
		}
	}
	return fmt.Errorf("%s:1: is not well-formed YAML: %s", line, msg)
}

// checkNode rejects anchors, aliases, tags and deep nesting anywhere.
func checkNode(n *yaml.Node, depth int) error {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return lineError(n, "anchors and aliases (&, *) are not allowed; write the value out")
	case n.Style&yaml.TaggedStyle != 0:
		return lineError(n, "tags (!) are not allowed")
	case depth > maxSpecDepth:
		return lineError(n, "nested too deeply")
	}
	for _, c := range n.Content {
		if err := checkNode(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// pairs calls do for each key, rejecting duplicates and keys that are not text.
func pairs(m *yaml.Node, do func(key string, k, v *yaml.Node) error) error {
	seen := map[string]int{}
	for i := 0; i+1 < len(m.Content); i += 2 {
		k, v := m.Content[i], m.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.Tag != "!!str" {
			return lineError(k, "key %s: want a word", console.ShortQuote(k.Value))
		}
		if at, twice := seen[k.Value]; twice {
			return lineError(k, "key %q appears twice, first in line %d", k.Value, at)
		}
		seen[k.Value] = k.Line
		if err := do(k.Value, k, v); err != nil {
			return err
		}
	}
	return nil
}

func (r *Request) applyMapping(root *yaml.Node) (command []string, err error) {
	all := Fields()
	byKey := make(map[string]*Field, len(all))
	known := []string{"command", "env", "study"}
	for i := range all {
		byKey[all[i].key()] = &all[i]
		known = append(known, all[i].key())
	}
	err = pairs(root, func(key string, k, v *yaml.Node) error {
		switch f := byKey[key]; {
		case key == "command":
			command, err = textList(key, "python, train.py", v)
			return err
		case key == "env":
			r.Env, err = environment(v)
			return err
		case key == "study":
			return r.study(v)
		case f == nil:
			return lineError(k, "unknown key %s%s", console.ShortQuote(key), console.DidYouMean(key, known))
		default:
			return r.applyScalar(f, v)
		}
	})
	return command, err
}

// applyList reads several values of one field.
func (r *Request) applyList(f *Field, v *yaml.Node) error {
	items, err := textList(f.key(), `"/data:/data:ro"`, v)
	if err != nil {
		return err
	}
	for i, item := range items {
		if err := f.Set(r, item); err != nil {
			return lineError(v.Content[i], "%s[%d]: %w", f.key(), i, err)
		}
	}
	return nil
}

func (r *Request) applyScalar(f *Field, v *yaml.Node) error {
	if f.Kind == kindList {
		return r.applyList(f, v)
	}
	if v.Kind != yaml.ScalarNode {
		return lineError(v, "%s: want one value, not a list or mapping", f.key())
	}
	quoted := v.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
	switch {
	case v.Tag == "!!null":
		return lineError(v, "%s: the value is missing", f.key())
	case f.Kind == kindText:
		if err := wantText(v); err != nil {
			return lineError(v, "%s: %w", f.key(), err)
		}
	case f.Kind == KindTruth && (v.Tag != "!!bool" || quoted || v.Value != "true" && v.Value != "false"):
		return lineError(v, "%s: %s: want true or false", f.key(), console.ShortQuote(v.Value))
	}
	if err := f.Set(r, v.Value); err != nil {
		return lineError(v, "%s: %w", f.key(), err)
	}
	return nil
}

// yaml11 matches the words that older YAML takes for booleans; people write
// them unquoted and mean either.
var yaml11 = pattern(`(?i)^(y|n|yes|no|on|off)$`)

// wantText rejects plain scalars that YAML, of any version, may read as
// something other than text.
func wantText(v *yaml.Node) error {
	if v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
		return errors.New("want text")
	}
	plain := v.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	if plain && (v.Tag != "!!str" || yaml11().MatchString(v.Value)) {
		return fmt.Errorf("%s could be read as something other than text; put it in quotes", console.ShortQuote(v.Value))
	}
	return nil
}

func textList(key, example string, v *yaml.Node) ([]string, error) {
	if v.Kind != yaml.SequenceNode {
		return nil, lineError(v, "%s: want a list, such as [%s]", key, example)
	}
	var out []string
	for i, c := range v.Content {
		if err := wantText(c); err != nil {
			return nil, lineError(c, "%s[%d]: %w", key, i, err)
		}
		out = append(out, c.Value)
	}
	return out, nil
}

func environment(v *yaml.Node) ([]string, error) {
	if v.Kind != yaml.MappingNode {
		return nil, lineError(v, "env: want names and values, such as OMP_NUM_THREADS: \"4\"")
	}
	var out []string
	err := pairs(v, func(key string, k, val *yaml.Node) error {
		if strings.Contains(key, "=") || key == "" {
			return lineError(k, "env: name %s may not be empty or hold '='", console.ShortQuote(key))
		}
		if err := wantText(val); err != nil {
			return lineError(val, "env: %s: %w", key, err)
		}
		out = append(out, key+"="+val.Value)
		return nil
	})
	return out, err
}

// pattern compiles on first use: every command starts, few use it.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
