package console

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
type JSONList struct{ n int }

// Add writes one element.
func (l *JSONList) Add(e *Env, v any) error {
	raw, err := marshalJSON(v)
	if err != nil {
		return err
	}
	head := "[\n  "
	if l.n > 0 {
		head = ",\n  "
	}
	l.n++
	e.Printf("%s", head)
	indentJSON(e.Out, escapedJSON(raw), 1)
	return nil
}

// Close ends the list.
func (l *JSONList) Close(e *Env) {
	if l.n == 0 {
		e.Printf("[]\n")
		return
	}
	e.Printf("\n]\n")
}
