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

// JSONList writes a list of any length as -o json does, element by element.
type JSONList struct {
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
	head := "[\n  "
	if l.n > 0 {
		head = ",\n  "
	}
	l.n++
	l.text = appendIndented(append(l.text, head...), escapedJSON(raw), 1)
	if len(l.text) >= listChunk {
		l.flush(e)
	}
	return nil
}

func (l *JSONList) flush(e *Env) {
	_, _ = e.Out.Write(l.text) // errors stay with Out
	l.text = l.text[:0]
}

// Close ends the list.
func (l *JSONList) Close(e *Env) {
	end := "\n]\n"
	if l.n == 0 {
		end = "[]\n"
	}
	l.text = append(l.text, end...)
	l.flush(e)
}
