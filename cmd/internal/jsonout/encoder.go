package jsonout

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Encoder appends values as indented JSON. What a field tagged keep:"" points
// to must not change while the encoder is used: its text is made once for all
// values with that pointer. An Encoder is for one goroutine.
type Encoder struct {
	depth int
	plans map[reflect.Type]write
	kept  int // total bytes of kept texts
	texts map[keptAt][]byte
}

// mostKept is how many bytes of texts are kept; beyond that, all are dropped.
const mostKept = 1 << 20

// write appends a value of the type that it was made for.
type write func(dst []byte, v reflect.Value) ([]byte, error)

// keptAt identifies a kept text: its value, and how deep it is indented. It
// holds a real pointer so that nothing else can be allocated there meanwhile.
type keptAt struct {
	what  any
	depth int
}

// NewEncoder returns an Encoder of values that begin at depth.
func NewEncoder(depth int) *Encoder {
	return &Encoder{depth: depth, plans: map[reflect.Type]write{}, texts: map[keptAt][]byte{}}
}

// Append appends v, whose line is already indented. The error is
// encoding/json's, and then nothing was appended.
func (e *Encoder) Append(dst []byte, v any) ([]byte, error) {
	at := reflect.ValueOf(v)
	if !at.IsValid() {
		return append(dst, "null"...), nil
	}
	w, ok := e.plans[at.Type()]
	if !ok {
		w, ok = (&planner{e: e}).of(at.Type(), e.depth)
		if !ok {
			w = naive(e.depth)
		}
		e.plans[at.Type()] = w
	}
	out, err := w(dst, at)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// naive returns a writer of any value by encoding/json.
func naive(depth int) write {
	return func(dst []byte, v reflect.Value) ([]byte, error) {
		raw, err := Marshal(v.Interface())
		if err != nil {
			return dst, err
		}
		return AppendIndented(dst, Escaped(raw), depth), nil
	}
}

// planner works out how values of a type are written.
type planner struct {
	e     *Encoder
	above []reflect.Type // the structs that contain the type
}

var (
	timeType  = reflect.TypeFor[time.Time]()
	marshaler = reflect.TypeFor[json.Marshaler]()
	texter    = reflect.TypeFor[encoding.TextMarshaler]()
)

// of returns how values of t are written at a depth; false if only
// encoding/json knows how their container is written.
func (p *planner) of(t reflect.Type, depth int) (write, bool) {
	if t == timeType {
		return timeAt(depth), true
	}
	if t.Implements(marshaler) || t.Implements(texter) {
		if t.Kind() == reflect.Pointer && t.Elem() == timeType {
			return p.pointer(t, depth)
		}
		return naive(depth), true
	}
	if own := reflect.PointerTo(t); own.Implements(marshaler) || own.Implements(texter) {
		return nil, false // it depends on where the value is
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		return number, true
	case reflect.String:
		if t == reflect.TypeFor[json.Number]() {
			return naive(depth), true
		}
		return func(dst []byte, v reflect.Value) ([]byte, error) { return AppendText(dst, v.String()), nil }, true
	case reflect.Pointer:
		return p.pointer(t, depth)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return naive(depth), true // base 64
		}
		return p.list(t, depth)
	case reflect.Struct:
		return p.object(t, depth)
	case reflect.Map, reflect.Interface:
		return naive(depth), true
	}
	return nil, false
}

// timeAt returns a writer of times in RFC 3339.
func timeAt(depth int) write {
	other := naive(depth)
	return func(dst []byte, v reflect.Value) ([]byte, error) {
		if !v.CanAddr() {
			return other(dst, v)
		}
		t := v.Addr().Interface().(*time.Time)
		if _, offset := t.Zone(); offset%60 != 0 || offset <= -24*3600 || offset >= 24*3600 || t.Year() < 0 || t.Year() > 9999 {
			return other(dst, v)
		}
		return append(t.AppendFormat(append(dst, '"'), time.RFC3339Nano), '"'), nil
	}
}

func (p *planner) pointer(t reflect.Type, depth int) (write, bool) {
	to, ok := p.of(t.Elem(), depth)
	return func(dst []byte, v reflect.Value) ([]byte, error) {
		if v.IsNil() {
			return append(dst, "null"...), nil
		}
		return to(dst, v.Elem())
	}, ok
}

func (p *planner) list(t reflect.Type, depth int) (write, bool) {
	each, ok := p.of(t.Elem(), depth+1)
	first, next, end := "["+Line(depth+1), ","+Line(depth+1), Line(depth)+"]"
	return func(dst []byte, v reflect.Value) (_ []byte, err error) {
		n := v.Len()
		switch {
		case n == 0 && v.IsNil():
			return append(dst, "null"...), nil
		case n == 0:
			return append(dst, "[]"...), nil
		}
		for i := range n {
			if i == 0 {
				dst = append(dst, first...)
			} else {
				dst = append(dst, next...)
			}
			if dst, err = each(dst, v.Index(i)); err != nil {
				return dst, err
			}
		}
		return append(dst, end...), nil
	}, ok
}

// field is a field of a struct, or of one embedded in it.
type field struct {
	name  string
	head  string // what precedes its value, including the comma after the previous one
	at    []int
	write write
	empty bool // omitted if empty
}

func (p *planner) object(t reflect.Type, depth int) (write, bool) {
	if slices.Contains(p.above, t) {
		return nil, false
	}
	p.above = append(p.above, t)
	defer func() { p.above = p.above[:len(p.above)-1] }()
	fields, ok := p.fields(nil, t, nil, depth+1)
	names := map[string]struct{}{}
	for _, f := range fields {
		names[f.name] = struct{}{}
	}
	if !ok || len(names) < len(fields) { // one of two with the same name may hide the other
		return nil, false
	}
	end := Line(depth) + "}"
	return func(dst []byte, v reflect.Value) (_ []byte, err error) {
		began := len(dst)
		dst = append(dst, '{')
		for i := range fields {
			f := &fields[i]
			of := v.Field(f.at[0])
			for _, k := range f.at[1:] {
				of = of.Field(k)
			}
			if f.empty && isEmpty(of) {
				continue
			}
			head := f.head
			if len(dst) == began+1 {
				head = head[1:]
			}
			if dst, err = f.write(append(dst, head...), of); err != nil {
				return dst, err
			}
		}
		if len(dst) == began+1 {
			return append(dst, '}'), nil
		}
		return append(dst, end...), nil
	}, true
}

// fields appends those of t, which is at index at in a struct.
func (p *planner) fields(all []field, t reflect.Type, at []int, depth int) ([]field, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		place := append(slices.Clone(at), i)
		switch {
		case tag == "-":
			continue
		case options != "" && options != "omitempty":
			return nil, false
		case f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct && !f.Type.Implements(marshaler) && !f.Type.Implements(texter):
			ok := false
			if all, ok = p.fields(all, f.Type, place, depth); !ok {
				return nil, false
			}
			continue
		case f.Anonymous:
			return nil, false
		case !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		if strings.ContainsFunc(name, func(r rune) bool {
			return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}) {
			return nil, false
		}
		w, ok := p.of(f.Type, depth)
		if !ok {
			return nil, false
		}
		if _, keep := f.Tag.Lookup("keep"); keep && f.Type.Kind() == reflect.Pointer {
			w = p.e.keeping(w, depth)
		}
		all = append(all, field{name: name, head: "," + Line(depth) + `"` + name + `": `, at: place, write: w, empty: options != ""})
	}
	return all, true
}

// keeping writes what a pointer points to as it was written before.
func (e *Encoder) keeping(w write, depth int) write {
	return func(dst []byte, v reflect.Value) ([]byte, error) {
		if v.IsNil() {
			return w(dst, v)
		}
		at := keptAt{v.Interface(), depth}
		if text, ok := e.texts[at]; ok {
			return append(dst, text...), nil
		}
		began := len(dst)
		dst, err := w(dst, v)
		if err != nil {
			return dst, err
		}
		if e.kept += len(dst) - began; e.kept > mostKept {
			clear(e.texts)
			e.kept = len(dst) - began
		}
		e.texts[at] = slices.Clone(dst[began:])
		return dst, nil
	}
}

// isEmpty reports whether encoding/json omits such a value.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}
