package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

func readBounded(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("more than %d bytes: %w", limit, ErrLimit)
	}
	return data, nil
}

// clean checks how deeply data nests, and replaces NaN and infinities, which Python
// writes although JSON has none, by null. It modifies data.
func clean(data []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch b := data[i]; {
		case inString && b == '\\':
			i++
		case b == '"':
			inString = !inString
		case inString:
		case b == '{' || b == '[':
			if depth++; depth > MaxDepth {
				return fmt.Errorf("nested deeper than %d levels: %w", MaxDepth, ErrLimit)
			}
		case b == '}' || b == ']':
			depth--
		case b == 'N' || b == 'I' || b == '-':
			for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
				if bytes.HasPrefix(data[i:], []byte(word)) {
					nullify(data[i : i+len(word)])
				}
			}
		}
	}
	return nil
}

// nullify overwrites a word with null, padded with spaces; the shortest becomes 0.
func nullify(word []byte) {
	text := "null"
	if len(word) < len(text) {
		text = "0"
	}
	for i := range word {
		word[i] = ' '
		if i < len(text) {
			word[i] = text[i]
		}
	}
}

// object is one JSON object.
type object struct {
	keys  []string // in the file's order
	field map[string]json.RawMessage
	twice []string // duplicate keys; the last one counts
}

// parseObject parses one JSON object with nothing after it; it modifies data.
func parseObject(data []byte, mostKeys int) (*object, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if err := clean(data); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%w: want a JSON object", ErrMalformed)
	}
	o := &object{field: make(map[string]json.RawMessage)}
	for dec.More() {
		t, err := dec.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return nil, fmt.Errorf("%w: at byte %d a key is missing", ErrMalformed, dec.InputOffset())
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, fmt.Errorf("%w: value of %q: %v", ErrMalformed, shorten(key), err)
		}
		if _, dup := o.field[key]; dup {
			o.twice = append(o.twice, key)
		} else if len(o.keys) >= mostKeys {
			return nil, fmt.Errorf("more than %d keys: %w", mostKeys, ErrLimit)
		} else {
			o.keys = append(o.keys, key)
		}
		o.field[key] = raw
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("%w: the object does not end", ErrMalformed)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: there is more after the object", ErrMalformed)
	}
	return o, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// find returns the first of names that is present and not null.
func (o *object) find(names ...string) (string, json.RawMessage) {
	for _, n := range names {
		if raw := o.field[n]; !isNull(raw) {
			return n, raw
		}
	}
	return "", nil
}

// has reports whether one of names is present and not null.
func (o *object) has(names ...string) bool {
	_, raw := o.find(names...)
	return raw != nil
}

// number parses the first of names that is present as an integer into p. A list of
// equal numbers counts as one. A value that is not an integer in the range of int64
// is an error.
func (o *object) number(p *int64, names ...string) error {
	name, raw := o.find(names...)
	if raw == nil {
		return nil
	}
	v, ok := wholeNumber(raw)
	if !ok {
		return fmt.Errorf("%s %s: must be a whole number", name, shorten(string(raw)))
	}
	*p = v
	return nil
}

func wholeNumber(raw json.RawMessage) (int64, bool) {
	if v, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return v, true
	}
	if raw[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
			return 0, false
		}
		same := slices.IndexFunc(list, func(x json.RawMessage) bool { return !bytes.Equal(x, list[0]) || x[0] == '[' }) < 0
		if !same {
			return 0, false
		}
		return wholeNumber(list[0])
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// text returns the first of names that is a string.
func (o *object) text(names ...string) string {
	var s string
	if _, raw := o.find(names...); raw != nil && json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// truth parses the first of names that is a boolean into p; other values are
// ignored.
func (o *object) truth(p *bool, names ...string) {
	var v bool
	if _, raw := o.find(names...); raw != nil && json.Unmarshal(raw, &v) == nil {
		*p = v
	}
}

// positive reports whether the first of names is a number above 0, as dropout rates
// are; it returns def if there is none.
func (o *object) positive(def bool, names ...string) bool {
	var v float64
	if _, raw := o.find(names...); raw != nil && json.Unmarshal(raw, &v) == nil {
		return v > 0
	}
	return def
}

// object returns a nested object; nil for none.
func (o *object) object(names ...string) *object {
	_, raw := o.find(names...)
	if raw == nil || raw[0] != '{' {
		return nil
	}
	in, err := parseObject(slices.Clone(raw), maxKeys)
	if err != nil {
		return nil
	}
	return in
}

// shorten cuts the part of a file that a message quotes.
func shorten(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return clip(s, most) + "…"
}

// clip cuts s to at most most bytes of valid UTF-8.
func clip(s string, most int) string {
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}
