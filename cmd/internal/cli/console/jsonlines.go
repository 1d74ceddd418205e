package console

import (
	"bytes"
	"encoding/json"
)

// FormatJSONLines is one JSON object a line, for what is read while it is
// written.
const FormatJSONLines Format = "jsonl"

// PrintJSONLine writes v as one line, with the escapes of -o json.
func PrintJSONLine(e *Env, v any) error {
	raw, err := marshalJSON(v)
	if err != nil {
		return err
	}
	e.Printf("%s\n", escapedJSON(raw))
	return nil
}

// JSONList writes a list of any length as -o json does, element by element. With a
// Member it is the last member, of that name, of an object whose others are Of's.
type JSONList struct {
	Of     any
	Member string

	n    int
	text []byte
	raw  bytes.Buffer
	enc  *json.Encoder // into raw
}

// listChunk is how much of a list is written at once, in bytes.
const listChunk = 64 << 10

// Add writes one element.
func (l *JSONList) Add(e *Env, v any) error {
	if l.enc == nil {
		l.enc = json.NewEncoder(&l.raw)
		l.enc.SetEscapeHTML(false)
	}
	l.raw.Reset()
	if err := l.enc.Encode(v); err != nil {
		return err
	}
	raw := bytes.TrimSuffix(l.raw.Bytes(), []byte("\n"))
	depth := 1
	if l.Member != "" {
		depth = 2
	}
	if l.n > 0 {
		l.text = append(l.text, ',')
	} else if err := l.open(); err != nil {
		return err
	} else {
		l.text = append(l.text, '[')
	}
	l.n++
	l.text = appendIndented(append(l.text, newline[:1+2*depth]...), escapedJSON(raw), depth)
	if len(l.text) >= listChunk {
		l.flush(e)
	}
	return nil
}

// open writes what stands before the list.
func (l *JSONList) open() error {
	if l.Member == "" {
		return nil
	}
	raw, err := marshalJSON(l.Of)
	if err != nil {
		return err
	}
	name, err := marshalJSON(l.Member)
	if err != nil {
		return err
	}
	raw = append(append(append(bytes.TrimSuffix(raw, []byte("}")), ','), name...), ":[]}"...)
	l.text = bytes.TrimSuffix(appendIndented(l.text, escapedJSON(raw), 0), []byte("[]\n}"))
	return nil
}

func (l *JSONList) flush(e *Env) {
	_, _ = e.Out.Write(l.text) // errors stay with Out
	l.text = l.text[:0]
}

// Close ends the list.
func (l *JSONList) Close(e *Env) error {
	if l.n == 0 {
		if err := l.open(); err != nil {
			return err
		}
		l.text = append(l.text, "[]"...)
	} else {
		depth := 0
		if l.Member != "" {
			depth = 1
		}
		l.text = append(append(l.text, newline[:1+2*depth]...), ']')
	}
	if l.Member != "" {
		l.text = append(l.text, "\n}"...)
	}
	l.text = append(l.text, '\n')
	l.flush(e)
	return nil
}
