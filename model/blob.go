package model

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/berth-scheduler/berth/model/fit"
)

// MaxWeightBytes bounds an encoded Weights: it travels through Raft.
const MaxWeightBytes = 256 << 10

// weightsVersion changes when the meaning or number of coefficients, terms or
// columns does.
const weightsVersion = 2

const weightsMagic = "BWGT"

// Encode encodes w in its canonical form: magic, version, the number of
// coefficients, little-endian floats, what was learned of each target, and a
// CRC-32C of all before it.
func (w *Weights) Encode() []byte {
	cs := w.coefficients()
	b := make([]byte, 0, len(weightsMagic)+8+8*len(cs))
	b = append(b, weightsMagic...)
	b = binary.LittleEndian.AppendUint16(b, weightsVersion)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(cs)))
	for _, c := range cs {
		b = appendFloat(b, *c.p)
	}
	b = binary.LittleEndian.AppendUint64(b, w.TrainedSeq)
	for t := range w.Learned {
		b = w.Learned[t].append(b)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// Checksum returns the CRC-32C that ends w's encoding.
func (w *Weights) Checksum() uint32 {
	b := w.Encode()
	return binary.LittleEndian.Uint32(b[len(b)-4:])
}

func appendFloat(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
}

func (l *Learned) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(l.Samples))
	for i := range l.Trees {
		b = appendFloat(binary.LittleEndian.AppendUint16(b, uint16(l.Trees[i])), l.Margins[i])
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(l.Groups)))
	for i := range l.Groups {
		g := &l.Groups[i]
		b = appendFloat(appendText(b, g.Key), g.Margin)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(g.Coef)))
		for _, c := range g.Coef {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(c))
		}
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(l.Types)))
	for i, t := range l.Types {
		b = binary.LittleEndian.AppendUint32(appendText(b, t), math.Float32bits(l.Factors[i]))
	}
	for _, hashes := range [][]uint32{l.Families, l.Kinds} {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(hashes)))
		for _, h := range hashes {
			b = binary.LittleEndian.AppendUint32(b, h)
		}
	}
	return l.Forest.Append(b)
}

// DecodeWeights decodes the result of Encode and refuses everything else: wrong
// length or version, corruption, NaN, infinities, values out of range. Errors wrap
// ErrWeights.
func DecodeWeights(b []byte) (Weights, error) {
	var w Weights
	cs := w.coefficients()
	head := len(weightsMagic) + 4
	switch {
	case len(b) > MaxWeightBytes:
		return w, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrWeights, len(b), MaxWeightBytes)
	case len(b) < head+4 || string(b[:len(weightsMagic)]) != weightsMagic:
		return w, fmt.Errorf("%w: not a weights file (it must begin with %q)", ErrWeights, weightsMagic)
	}
	if v := binary.LittleEndian.Uint16(b[len(weightsMagic):]); v != weightsVersion {
		return w, fmt.Errorf("%w: version %d, this program reads version %d", ErrWeights, v, weightsVersion)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)); got != sum {
		return w, fmt.Errorf("%w: checksum %08x, must be %08x; the file is damaged", ErrWeights, got, sum)
	}
	n := int(binary.LittleEndian.Uint16(b[len(weightsMagic)+2:]))
	r := reader{b: body[head:]}
	if n != len(cs) || len(r.b) < 8*n {
		return w, fmt.Errorf("%w: %d coefficients in %d bytes, must be %d", ErrWeights, n, len(b), len(cs))
	}
	for _, c := range cs {
		*c.p = r.float()
	}
	w.TrainedSeq = binary.LittleEndian.Uint64(r.take(8))
	for t := range w.Learned {
		r.learned(&w.Learned[t])
	}
	if r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("%w: %d bytes too many", ErrWeights, len(r.b))
	}
	if r.err != nil {
		return Weights{}, r.err
	}
	if err := w.Check(); err != nil {
		return Weights{}, err
	}
	return w, nil
}

// reader takes numbers off the front of b; after the first error all are 0.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n int) []byte {
	if r.err == nil && len(r.b) < n {
		r.err = fmt.Errorf("%w: cut short", ErrWeights)
	}
	if r.err != nil {
		return make([]byte, n)
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) float() float64 { return math.Float64frombits(binary.LittleEndian.Uint64(r.take(8))) }

// count reads a count and refuses one above limit, so that corrupt input cannot
// make the program allocate.
func (r *reader) count(limit int) int {
	n := int(binary.LittleEndian.Uint16(r.take(2)))
	if r.err == nil && n > limit {
		r.err = fmt.Errorf("%w: a count of %d, at most %d is allowed", ErrWeights, n, limit)
	}
	if r.err != nil {
		return 0
	}
	return n
}

func (r *reader) text(limit int) string { return string(r.take(r.count(limit))) }

func (r *reader) learned(l *Learned) {
	l.Samples = int64(binary.LittleEndian.Uint64(r.take(8)))
	for i := range l.Trees {
		l.Trees[i] = r.count(fit.MaxNodes)
		l.Margins[i] = r.float()
	}
	for range r.count(maxGroups) {
		g := Group{Key: r.text(maxGroupKey)}
		g.Margin = r.float()
		for range r.count(maxTerms) {
			g.Coef = append(g.Coef, math.Float32frombits(binary.LittleEndian.Uint32(r.take(4))))
		}
		l.Groups = append(l.Groups, g)
	}
	for range r.count(maxTypes) {
		l.Types = append(l.Types, r.text(maxTypeName))
		l.Factors = append(l.Factors, math.Float32frombits(binary.LittleEndian.Uint32(r.take(4))))
	}
	for range r.count(maxFamilies) {
		l.Families = append(l.Families, binary.LittleEndian.Uint32(r.take(4)))
	}
	for range r.count(maxKinds) {
		l.Kinds = append(l.Kinds, binary.LittleEndian.Uint32(r.take(4)))
	}
	if r.err != nil {
		return
	}
	f, rest, err := fit.ReadForest(r.b, columnCount)
	if err != nil {
		r.err = fmt.Errorf("%w: %w", ErrWeights, err)
		return
	}
	l.Forest, r.b = f, rest
}
