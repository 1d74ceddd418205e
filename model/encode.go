package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// MaxFeatureBytes bounds the encoding of Features.
const MaxFeatureBytes = 4 << 10

// featuresVersion is the first byte of the encoding. It must change with the fields
// or their order.
const featuresVersion = 2

// ErrFeatures is wrapped by the errors of DecodeFeatures.
var ErrFeatures = errors.New("bad model features")

// Encode encodes f in its canonical form: equal features give equal bytes.
func (f *Features) Encode() []byte {
	b := make([]byte, 0, 192)
	b = append(b, featuresVersion, byte(f.Mode), boolByte(f.Partial), boolByte(f.Checkpointing))
	for _, s := range []string{string(f.Source), f.Model, string(f.Precision), string(f.Optimizer), f.Framework} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for _, v := range f.numbers() {
		b = binary.AppendUvarint(b, uint64(*v.p))
	}
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f.Declared.Seconds))
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// DecodeFeatures decodes the result of Encode. It refuses anything else: other
// versions, trailing bytes, numbers out of range, padded numbers. Errors wrap
// ErrFeatures.
func DecodeFeatures(b []byte) (Features, error) {
	var f Features
	if len(b) > MaxFeatureBytes {
		return f, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrFeatures, len(b), MaxFeatureBytes)
	}
	if len(b) < 4 {
		return f, fmt.Errorf("%w: %d bytes are too few", ErrFeatures, len(b))
	}
	if b[0] != featuresVersion {
		return f, fmt.Errorf("%w: version %d, this program reads version %d; use the same release on client and server", ErrFeatures, b[0], featuresVersion)
	}
	f.Mode, f.Partial, f.Checkpointing = Mode(b[1]), b[2] != 0, b[3] != 0
	rest := b[4:]
	var text [5]string
	for i := range text {
		n, used := binary.Uvarint(rest)
		if used <= 0 || n > uint64(len(rest)-used) {
			return Features{}, fmt.Errorf("%w: cut short", ErrFeatures)
		}
		text[i] = string(rest[used : used+int(n)])
		rest = rest[used+int(n):]
	}
	f.Source, f.Model, f.Precision, f.Optimizer = Source(text[0]), text[1], Precision(text[2]), Optimizer(text[3])
	f.Framework = text[4]
	for _, v := range f.numbers() {
		n, used := binary.Uvarint(rest)
		if used <= 0 {
			return Features{}, fmt.Errorf("%w: cut short at %s", ErrFeatures, v.name)
		}
		if n > uint64(v.max) {
			return Features{}, fmt.Errorf("%w: %s %d: must be 0 to %d", ErrFeatures, v.name, n, v.max)
		}
		*v.p = int64(n)
		rest = rest[used:]
	}
	if len(rest) != 8 {
		return Features{}, fmt.Errorf("%w: %d bytes where 8 must end it", ErrFeatures, len(rest))
	}
	f.Declared.Seconds = math.Float64frombits(binary.LittleEndian.Uint64(rest))
	if err := f.Check(); err != nil {
		return Features{}, fmt.Errorf("%w: %w", ErrFeatures, err)
	}
	if !bytes.Equal(f.Encode(), b) {
		return Features{}, fmt.Errorf("%w: not in canonical form", ErrFeatures)
	}
	return f, nil
}
