package console

import (
	"bytes"

	"github.com/berth-scheduler/berth/cmd/internal/jsonout"
)

// FormatJSONLines is one JSON object per line, for output that is read
// while it is written.
const FormatJSONLines Format = "jsonl"

// PrintJSONLine writes v as one line, with the escapes of -o json.
func PrintJSONLine(e *Env, v any) error {
	raw, err := jsonout.Marshal(v)
	if err != nil {
		return err
	}
	e.Printf("%s\n", jsonout.Escaped(raw))
	return nil
}

// JSONList writes a list of any length as -o json does, element by element.
// With a Member it is the last member, of that name, of an object whose
// others are Of's.
type JSONList struct {
	Of     any
	Member string

	n    int
	text []byte
	enc  *jsonout.Encoder
}

// listChunk is how much of a list is written at once, in bytes.
const listChunk = 64 << 10

// Add writes one element. What its fields tagged keep:"" point to must not
// change until the list is closed.
func (l *JSONList) Add(e *Env, v any) error {
	if l.enc == nil {
		l.enc, l.text = jsonout.NewEncoder(l.depth()), make([]byte, 0, listChunk+listChunk/4)
	}
	was := len(l.text)
	if l.n > 0 {
		l.text = append(l.text, ',')
	} else if err := l.open(); err != nil {
		return err
	} else {
		l.text = append(l.text, '[')
	}
	text, err := l.enc.Append(append(l.text, newline[:1+2*l.depth()]...), v)
	if err != nil {
		l.text = l.text[:was]
		return err
	}
	l.text = text
	l.n++
	if len(l.text) >= listChunk {
		l.flush(e)
	}
	return nil
}

// newline is a line end and the indentation of an element.
const newline = "\n    "

// depth returns the nesting depth of an element.
func (l *JSONList) depth() int {
	if l.Member == "" {
		return 1
	}
	return 2
}

// open writes what precedes the list.
func (l *JSONList) open() error {
	if l.Member == "" {
		return nil
	}
	raw, err := jsonout.Marshal(l.Of)
	if err != nil {
		return err
	}
	name, err := jsonout.Marshal(l.Member)
	if err != nil {
		return err
	}
	raw = append(append(append(bytes.TrimSuffix(raw, []byte("}")), ','), name...), ":[]}"...)
	l.text = bytes.TrimSuffix(jsonout.AppendIndented(l.text, jsonout.Escaped(raw), 0), []byte("[]\n}"))
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
		l.text = append(append(l.text, newline[:2*l.depth()-1]...), ']')
	}
	if l.Member != "" {
		l.text = append(l.text, "\n}"...)
	}
	l.text = append(l.text, '\n')
	l.flush(e)
	return nil
}
