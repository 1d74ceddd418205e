package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// file reads the YAML layer. It walks the nodes itself instead of decoding
// into the struct: the library stops at the first problem, takes 0777 for an
// octal number and on for a truth value in some places, and cannot say which
// line set a key. It returns false when the file as a whole is unusable.
func (l *layers) file(path string, data []byte) bool {
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return true // empty, or only comments
	case err != nil:
		l.add(path, "", "is not YAML: %s", yamlText(err))
		return false
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		l.add(place(path, &second), "", "holds a second document; a file holds one configuration")
		return false
	} else if !errors.Is(err, io.EOF) {
		l.add(path, "", "is not YAML: %s", yamlText(err))
		return false
	}
	if bad, why := forbidden(&doc, 0); bad != nil {
		l.add(place(path, bad), "", "%s", why)
		return false
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return true
	}
	l.section(path, "", root)
	return root.Kind == yaml.MappingNode
}

// forbidden finds the first node that uses what a configuration does not
// need and an attacker does: anchors, aliases, merges, tags, great depth.
func forbidden(n *yaml.Node, depth int) (*yaml.Node, string) {
	switch {
	case depth > MaxDepth:
		return n, fmt.Sprintf("is nested more than %d deep", MaxDepth)
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return n, "uses an anchor or alias (& or *); write the value out"
	case n.Tag == "!!merge":
		return n, "uses a merge key (<<); write the values out"
	case n.Style&yaml.TaggedStyle != 0:
		return n, fmt.Sprintf("uses the tag %.40q; write plain values", n.Tag)
	}
	for _, c := range n.Content {
		if bad, why := forbidden(c, depth+1); bad != nil {
			return bad, why
		}
	}
	return nil, ""
}

// section reads a mapping; name is "" at the top.
func (l *layers) section(path, name string, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		what := cmp.Or(name, "the file")
		l.add(place(path, n), what, "is %s, want a mapping with keys %s", kindOf(n), strings.Join(l.table.sections[name], ", "))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		where, key := place(path, k), join(name, k.Value)
		if k.Kind != yaml.ScalarNode {
			l.add(where, name, "has %s as a key, want a plain name", kindOf(k))
			continue
		}
		if first, dup := seen[k.Value]; dup {
			l.add(where, shorten(key), "is given twice, first in line %d", first)
			continue
		}
		seen[k.Value] = k.Line
		field, isField := l.table.fields[key]
		_, isSection := l.table.sections[key]
		switch {
		case isField:
			l.value(path, key, field, v)
		case isSection && isNull(v): // a heading whose settings are all commented out
		case isSection:
			l.section(path, key, v)
		default:
			l.add(where, shorten(key), "is an unknown key%s", suggest(k.Value, l.table.sections[name]))
		}
	}
}

func (l *layers) value(path, key string, field reflect.Value, n *yaml.Node) {
	where := place(path, n)
	l.origins[key] = where
	switch field.Type() {
	case stringsType:
		l.list(path, key, field, n)
	case peersType:
		structList[Peer](l, path, key, field, n)
	case tenantsType:
		structList[Tenant](l, path, key, field, n)
	default:
		if err := setScalar(field, n); err != nil {
			l.add(where, key, "%v", err)
		}
	}
}

func setScalar(field reflect.Value, n *yaml.Node) error {
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
	switch {
	case n.Kind != yaml.ScalarNode:
		return fmt.Errorf("is %s, want %s", kindOf(n), wanted(field))
	case isNull(n):
		return fmt.Errorf("has no value, want %s; leave the key out for the default", wanted(field))
	case quoted && (field.Kind() == reflect.Bool || field.Kind() == reflect.Int || field.Kind() == reflect.Float64):
		return fmt.Errorf("is %.80q in quotes, want %s without quotes", n.Value, wanted(field))
	}
	return setText(field, n.Value)
}

func (l *layers) list(path, key string, field reflect.Value, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		l.add(place(path, n), key, "is %s, want a list", kindOf(n))
		return
	}
	items := make([]string, len(n.Content))
	for i, c := range n.Content {
		if err := setScalar(reflect.ValueOf(&items[i]).Elem(), c); err != nil {
			l.add(place(path, c), indexed(key, i), "%v", err)
		}
	}
	field.Set(reflect.ValueOf(items))
}

// structList reads a list of mappings, each a T.
func structList[T any](l *layers, path, key string, field reflect.Value, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		l.add(place(path, n), key, "is %s, want %s", kindOf(n), wanted(field))
		return
	}
	items := make([]T, len(n.Content))
	for i, c := range n.Content {
		// The same walk over its own table, so that the keys of an item are
		// checked as strictly.
		sub := layers{table: tableOf(&items[i]), origins: map[string]string{}}
		sub.section(path, "", c)
		for _, p := range sub.problems {
			p.Key = strings.TrimSuffix(indexed(key, i)+"."+strings.TrimPrefix(p.Key, "the file"), ".")
			l.problems = append(l.problems, p)
		}
	}
	field.Set(reflect.ValueOf(items))
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func place(path string, n *yaml.Node) string { return fmt.Sprintf("%s:%d", path, n.Line) }

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
		return fmt.Sprintf("%.80q", n.Value)
	}
}

// shorten escapes and shortens a key that a user wrote.
func shorten(key string) string {
	q := fmt.Sprintf("%.80q", key)
	return q[1 : len(q)-1]
}

func yamlText(err error) string {
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " ")
}
