package graph

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// window is the size of the read buffer: large enough for any varint and short
// string, small enough that reading a model of any size costs kilobytes.
const window = 32 << 10

// wire walks protobuf fields over a stream. end arguments are absolute offsets
// at which the enclosing message stops.
type wire struct {
	br   *bufio.Reader
	src  io.Reader
	seek io.Seeker // nil when the source cannot seek
	off  int64
	size int64 // MaxInt64 when unknown
	kept int64
}

func newWire(r io.Reader) *wire {
	w := &wire{br: bufio.NewReaderSize(r, window), src: r, size: math.MaxInt64}
	s, ok := r.(io.Seeker)
	if !ok {
		return w
	}
	cur, err := s.Seek(0, io.SeekCurrent)
	if err != nil {
		return w // a pipe behind an *os.File
	}
	end, err := s.Seek(0, io.SeekEnd)
	if err != nil {
		return w
	}
	if _, err := s.Seek(cur, io.SeekStart); err != nil {
		return w
	}
	w.seek, w.size = s, end-cur
	return w
}

func (w *wire) malformed(what string) error {
	return fmt.Errorf("%w: %s at byte %d", ErrMalformed, what, w.off)
}

// keep charges n bytes of memory against the budget.
func (w *wire) keep(n int64) error {
	if n < 0 || n > MaxKeptBytes-w.kept {
		return fmt.Errorf("%w: more than %d MiB of names, shapes and attributes", ErrLimit, MaxKeptBytes>>20)
	}
	w.kept += n
	return nil
}

// atEnd reports whether the message that stops at end has no more fields.
func (w *wire) atEnd(end int64) (bool, error) {
	if w.off >= end {
		return true, nil
	}
	_, err := w.br.Peek(1)
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, io.EOF) && end == math.MaxInt64:
		return true, nil
	case errors.Is(err, io.EOF):
		return false, w.malformed("the file ends in the middle of a message")
	default:
		return false, fmt.Errorf("read model: %w", err)
	}
}

func (w *wire) varint(end int64) (uint64, error) {
	limit := min(int64(protobufVarintMax), end-w.off)
	b, err := w.br.Peek(int(limit))
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read model: %w", err)
	}
	v, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return 0, w.malformed("bad number")
	}
	w.off += int64(n)
	if _, err := w.br.Discard(n); err != nil {
		return 0, fmt.Errorf("read model: %w", err)
	}
	return v, nil
}

const protobufVarintMax = 10

// tag reads the number and type of the next field.
func (w *wire) tag(end int64) (protowire.Number, protowire.Type, error) {
	v, err := w.varint(end)
	if err != nil {
		return 0, 0, err
	}
	num, typ := protowire.DecodeTag(v)
	if num < protowire.MinValidNumber {
		return 0, 0, w.malformed("bad field number")
	}
	return num, typ, nil
}

// length reads the length of a field and returns where the field stops.
func (w *wire) length(end int64) (int64, error) {
	n, err := w.varint(end)
	if err != nil {
		return 0, err
	}
	limit := min(end, w.size)
	if n > uint64(math.MaxInt64) || int64(n) > limit-w.off {
		return 0, w.malformed("a field is longer than what holds it")
	}
	return w.off + int64(n), nil
}

// skipTo skips to the absolute offset to, without reading if the source can seek.
func (w *wire) skipTo(to int64) error {
	n := to - w.off
	if buffered := int64(w.br.Buffered()); w.seek != nil && n > buffered {
		if _, err := w.seek.Seek(n-buffered, io.SeekCurrent); err != nil {
			return fmt.Errorf("skip weights: %w", err)
		}
		w.br.Reset(w.src)
		w.off = to
		return nil
	}
	for n > 0 {
		step := int(min(n, 1<<30))
		d, err := w.br.Discard(step)
		w.off += int64(d)
		n -= int64(d)
		if errors.Is(err, io.EOF) {
			return w.malformed("the file ends in the middle of a field")
		}
		if err != nil {
			return fmt.Errorf("read model: %w", err)
		}
	}
	return nil
}

// skip skips one field of the given type.
func (w *wire) skip(typ protowire.Type, end int64) error {
	switch typ {
	case protowire.VarintType:
		_, err := w.varint(end)
		return err
	case protowire.Fixed32Type, protowire.Fixed64Type:
		n := int64(4)
		if typ == protowire.Fixed64Type {
			n = 8
		}
		if n > end-w.off {
			return w.malformed("a field is longer than what holds it")
		}
		return w.skipTo(w.off + n)
	case protowire.BytesType:
		to, err := w.length(end)
		if err != nil {
			return err
		}
		return w.skipTo(to)
	default:
		return w.malformed("a field of a kind that ONNX does not use")
	}
}

// bytes reads a field of bytes and charges it to the budget.
func (w *wire) bytes(end int64) ([]byte, error) {
	to, err := w.length(end)
	if err != nil {
		return nil, err
	}
	n := to - w.off
	if err := w.keep(n); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	m, err := io.ReadFull(w.br, b)
	w.off += int64(m)
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, w.malformed("the file ends in the middle of a field")
		}
		return nil, fmt.Errorf("read model: %w", err)
	}
	return b, nil
}

func (w *wire) string(end int64) (string, error) {
	b, err := w.bytes(end)
	if err != nil {
		return "", err
	}
	return string(b), w.keep(16)
}

func (w *wire) fixed32(end int64) (uint32, error) {
	if end-w.off < 4 {
		return 0, w.malformed("a field is longer than what holds it")
	}
	var b [4]byte
	m, err := io.ReadFull(w.br, b[:])
	w.off += int64(m)
	if err != nil {
		return 0, w.malformed("the file ends in the middle of a field")
	}
	v, _ := protowire.ConsumeFixed32(b[:])
	return v, nil
}

// numberKind is a kind of numbers that a repeated field holds. Each is charged size
// bytes of the budget.
type numberKind[T any] struct {
	name string
	each protowire.Type
	size int64
	next func(to int64) (T, error)
}

// varints appends the numbers of a repeated field, packed or not, to dst. It keeps
// at most limit numbers; full reports whether more were skipped.
func (w *wire) varints(dst []int64, typ protowire.Type, end int64, limit int) (out []int64, full bool, err error) {
	return numberKind[int64]{"numbers", protowire.VarintType, 8, func(to int64) (int64, error) {
		v, err := w.varint(to)
		return int64(v), err
	}}.list(w, dst, typ, end, limit)
}

// floats is varints for 32-bit floats.
func (w *wire) floats(dst []float32, typ protowire.Type, end int64, limit int) (out []float32, full bool, err error) {
	return numberKind[float32]{"floats", protowire.Fixed32Type, 4, func(to int64) (float32, error) {
		v, err := w.fixed32(to)
		return math.Float32frombits(v), err
	}}.list(w, dst, typ, end, limit)
}

func (k numberKind[T]) list(w *wire, dst []T, typ protowire.Type, end int64, limit int) (out []T, full bool, err error) {
	to, single := end, typ == k.each
	if !single {
		if typ != protowire.BytesType {
			return dst, false, w.malformed("a list of " + k.name + " of the wrong kind")
		}
		if to, err = w.length(end); err != nil {
			return dst, false, err
		}
	}
	for w.off < to {
		if len(dst) >= limit {
			if single {
				_, err = k.next(to)
				return dst, true, err
			}
			return dst, true, w.skipTo(to)
		}
		v, err := k.next(to)
		if err != nil {
			return dst, false, err
		}
		if err := w.keep(k.size); err != nil {
			return dst, false, err
		}
		dst = append(dst, v)
		if single {
			break
		}
	}
	return dst, false, nil
}

// fields walks the message that stops at end. visit returns false for a field it
// does not want, which is then skipped.
func (w *wire) fields(end int64, visit func(num protowire.Number, typ protowire.Type) (bool, error)) error {
	for {
		done, err := w.atEnd(end)
		if err != nil || done {
			return err
		}
		num, typ, err := w.tag(end)
		if err != nil {
			return err
		}
		used, err := visit(num, typ)
		if err != nil {
			return err
		}
		if !used {
			if err := w.skip(typ, end); err != nil {
				return err
			}
		}
	}
}

// sub walks a nested message.
func (w *wire) sub(end int64, visit func(end int64, num protowire.Number, typ protowire.Type) (bool, error)) error {
	to, err := w.length(end)
	if err != nil {
		return err
	}
	if to == math.MaxInt64 {
		return w.malformed("a message without end")
	}
	return w.fields(to, func(num protowire.Number, typ protowire.Type) (bool, error) { return visit(to, num, typ) })
}
