// Package jsontest generates values to be written as JSON and their expected text.
package jsontest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cmd/internal/escape"
)

// Fill draws the exported fields of the value that p points to. What fields
// tagged keep:"" point to is drawn from the values in shared, by type, or
// drawn anew and added there.
func Fill(t *rapid.T, p any, shared map[reflect.Type][]reflect.Value) {
	fill(t, reflect.ValueOf(p).Elem(), shared)
}

var texts = rapid.OneOf(
	rapid.SampledFrom([]string{"", "true.sh", "a\"b\\c", "<&>", "x\x00\x1b[31m\x7f", "\b\f\n\r\t", "é", "\u2028\u2029", "\u202e", "\xff\xc3", "👩‍🔬", "\U000e0001z", "{}[],:"}),
	rapid.String())

func fill(t *rapid.T, v reflect.Value, shared map[reflect.Type][]reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		at := time.UnixMicro(rapid.Int64Range(-1e16, 3e17).Draw(t, "time")).In(rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("", 3600), time.FixedZone("", -90)}).Draw(t, "zone"))
		if y := at.UTC().Year(); y < 1 || y > 9998 || at.Location() != time.UTC && rapid.Bool().Draw(t, "plain") {
			at = time.Unix(1795512474, 5000)
		}
		v.Set(reflect.ValueOf(at))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, "int"))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "uint"))
	case reflect.Float32:
		v.SetFloat(float64(rapid.OneOf(rapid.SampledFrom([]float32{0, 1.5e-7, 1e21, 123456792}), rapid.Float32()).Draw(t, "float")))
	case reflect.Float64:
		v.SetFloat(rapid.OneOf(rapid.SampledFrom([]float64{0, 1, -1, 1.5e-7, 1e20, 1e21, 3e300, 0.1, 9007199254740991, 123456792}), rapid.Float64(), rapid.Map(rapid.Int64(), func(n int64) float64 { return float64(n) })).Draw(t, "float"))
	case reflect.String:
		v.SetString(texts.Draw(t, "text"))
	case reflect.Pointer:
		if rapid.IntRange(0, 3).Draw(t, "nil") > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem(), shared)
		}
	case reflect.Slice:
		if n := rapid.IntRange(-1, 2).Draw(t, "length"); n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(t, v.Index(i), shared)
			}
		}
	case reflect.Map:
		if rapid.Bool().Draw(t, "map") {
			v.Set(reflect.MakeMap(v.Type()))
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, key, shared)
			fill(t, value, shared)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() && !f.Anonymous {
				continue
			}
			if _, keep := f.Tag.Lookup("keep"); keep {
				keptOf(t, v.Field(i), shared)
				continue
			}
			if f.IsExported() || f.Type.Kind() == reflect.Struct {
				fill(t, v.Field(i), shared)
			}
		}
	}
}

// keptOf draws a pointer that several values may share.
func keptOf(t *rapid.T, v reflect.Value, shared map[reflect.Type][]reflect.Value) {
	have := shared[v.Type()]
	if i := rapid.IntRange(-1, len(have)).Draw(t, "kept"); i >= 0 && i < len(have) {
		v.Set(have[i])
		return
	}
	if fill(t, v, shared); !v.IsNil() {
		shared[v.Type()] = append(have, reflect.ValueOf(v.Interface()))
	}
}

// Naive returns the expected text of v from a depth on: by encoding/json,
// indented by json.Indent, with each character that could steer a terminal
// escaped.
func Naive(v any, depth int) (string, error) {
	var raw, out bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	if err := json.Indent(&out, bytes.TrimSpace(raw.Bytes()), strings.Repeat("  ", depth), "  "); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, r := range out.String() {
		switch {
		case r < 0x7f || escape.Shown(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String(), nil
}
