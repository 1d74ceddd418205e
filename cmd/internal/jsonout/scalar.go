package jsonout

import (
	"math"
	"reflect"
	"strconv"
)

// number writes numbers, true and false.
func number(dst []byte, v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(dst, v.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(dst, v.Int(), 10), nil
	case reflect.Float32:
		return float(dst, v, 32)
	case reflect.Float64:
		return float(dst, v, 64)
	}
	return strconv.AppendUint(dst, v.Uint(), 10), nil
}

// float writes a number as ECMAScript and encoding/json do: with an exponent,
// without a leading zero, if it is very large or small.
func float(dst []byte, v reflect.Value, bits int) ([]byte, error) {
	f := v.Float()
	size := math.Abs(f)
	switch {
	case math.IsInf(f, 0) || math.IsNaN(f):
		return naive(0)(dst, v) // its error
	case bits == 64 && size != 0 && (size < 1e-6 || size >= 1e21), bits == 32 && size != 0 && (float32(size) < 1e-6 || float32(size) >= 1e21):
		dst = strconv.AppendFloat(dst, f, 'e', -1, bits)
		if n := len(dst); n >= 4 && dst[n-4] == 'e' && (dst[n-3] == '-' || dst[n-3] == '+') && dst[n-2] == '0' {
			dst[n-2] = dst[n-1]
			dst = dst[:n-1]
		}
		return dst, nil
	case bits == 64 && size < 1<<53 && f == math.Trunc(f) && (f != 0 || !math.Signbit(f)): // most are whole
		return strconv.AppendInt(dst, int64(f), 10), nil
	}
	return strconv.AppendFloat(dst, f, 'f', -1, bits), nil
}

// plain are the bytes that appear in a text unchanged.
var plain = func() (is [256]bool) {
	for c := range is {
		is[c] = c >= 0x20 && c < 0x7f && c != '"' && c != '\\'
	}
	return is
}()

// AppendText appends a quoted text.
func AppendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if plain[c] {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch {
		case c >= 0x7f:
			return appendRest(dst, s[i:])
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\b':
			dst = append(dst, `\b`...)
		case c == '\f':
			dst = append(dst, `\f`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, s[from:]...), '"')
}

const hex = "0123456789abcdef"

// appendRest appends the rest of a text from a byte on that is not ASCII, or is DEL.
func appendRest(dst []byte, s string) []byte {
	raw, err := Marshal(s)
	if err != nil { // cannot happen for texts
		return append(dst, '"')
	}
	return append(dst, Escaped(raw)[1:]...)
}
