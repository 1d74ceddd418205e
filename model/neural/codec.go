package neural

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// MaxBytes bounds an encoded model.
const MaxBytes = 4 << 20

// version changes when the layout or the meaning of the bytes does.
const version = 1

// maxMoment bounds means and deviations of values up to MaxValue, rounding
// included.
const maxMoment = 2 * MaxValue

const magic = "BNRL"

const (
	kindMLP = 1
	kindVAE = 2
)

// ErrModel is wrapped by the errors of Decode.
var ErrModel = errors.New("bad neural model")

// Encode implements Regressor.
func (m *MLP) Encode() []byte { return m.encode(kindMLP) }

// Encode implements Regressor.
func (v *VAE) Encode() []byte { return v.encode(kindVAE) }

// encode writes magic, version, kind, the configuration, scales, parameters and
// the optimizer's state, little-endian, and a CRC-32C of all before it.
func (c *core) encode(kind byte) []byte {
	le := binary.LittleEndian
	b := append([]byte(magic), 0, 0, kind, byte(len(c.cfg.Hidden)))
	le.PutUint16(b[len(magic):], version)
	b = le.AppendUint16(b, uint16(len(c.cols)))
	b = le.AppendUint16(b, uint16(len(c.targets)))
	for _, w := range c.cfg.Hidden {
		b = le.AppendUint16(b, uint16(w))
	}
	for _, n := range c.cfg.counts() {
		b = le.AppendUint16(b, uint16(*n.p))
	}
	b = le.AppendUint64(le.AppendUint64(b, c.cfg.Seed), c.updates)
	float := func(vs ...float64) {
		for _, v := range vs {
			b = le.AppendUint64(b, math.Float64bits(v))
		}
	}
	for _, s := range c.cfg.settings() {
		float(*s.p)
	}
	for _, col := range c.cols {
		b = append(b, byte(col.kind))
		float(col.mean, col.scale)
	}
	for _, t := range c.targets {
		b = append(b, byte(t.kind))
		float(t.mean, t.scale, t.floor, t.weight, t.lo, t.hi)
	}
	float(c.opt.pow1, c.opt.pow2)
	float(c.params...)
	float(c.opt.m...)
	float(c.opt.v...)
	return le.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// reader takes fields off a body whose checksum was right. After bad is set all
// reads give zeros.
type reader struct {
	b   []byte
	bad error
}

func (r *reader) fail(format string, args ...any) {
	if r.bad == nil {
		r.bad = fmt.Errorf("%w: "+format, append([]any{ErrModel}, args...)...)
	}
}

func (r *reader) take(n int) []byte {
	if r.bad == nil && len(r.b) < n {
		r.fail("it ends %d bytes early", n-len(r.b))
	}
	if r.bad != nil {
		return make([]byte, n)
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) u8() int      { return int(r.take(1)[0]) }
func (r *reader) u16() int     { return int(binary.LittleEndian.Uint16(r.take(2))) }
func (r *reader) u64() uint64  { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *reader) kind() Scale  { return Scale(r.u8()) }
func (r *reader) raw() float64 { return math.Float64frombits(r.u64()) }

// float reads a number from low to most; NaN is refused with the rest.
func (r *reader) float(what string, low, most float64) float64 {
	v := r.raw()
	if !(v >= low && v <= most) {
		r.fail("%s is %v, must be %v to %v", what, v, low, most)
	}
	return v
}

func (r *reader) floats(what string, vs []float64, low, most float64) {
	for i := range vs {
		vs[i] = r.float(what, low, most)
	}
}

// Decode reads what Encode wrote and refuses everything else: a wrong length or
// version, damage, NaN, infinities, values out of range. The result is an *MLP
// or a *VAE. Errors wrap ErrModel.
func Decode(b []byte) (Regressor, error) {
	body, err := open(b)
	if err != nil {
		return nil, err
	}
	r := &reader{b: body}
	kind := r.u8()
	var c core
	c.read(r)
	if r.bad != nil {
		return nil, r.bad
	}
	switch kind {
	case kindMLP:
		m := &MLP{core: c}
		if _, n := m.shape(); !r.expect(n) {
			return nil, r.bad
		}
		m.layOut()
		if m.readState(r); r.bad != nil {
			return nil, r.bad
		}
		return m, nil
	case kindVAE:
		v := &VAE{core: c}
		if _, _, _, n := v.shape(); !r.expect(n) {
			return nil, r.bad
		}
		v.layOut()
		if v.readState(r); r.bad != nil {
			return nil, r.bad
		}
		return v, nil
	}
	return nil, fmt.Errorf("%w: kind %d, must be %d or %d", ErrModel, kind, kindMLP, kindVAE)
}

// open checks frame and checksum, and returns what lies between version and
// checksum.
func open(b []byte) ([]byte, error) {
	head := len(magic) + 2
	switch {
	case len(b) > MaxBytes:
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrModel, len(b), MaxBytes)
	case len(b) < head+4 || string(b[:len(magic)]) != magic:
		return nil, fmt.Errorf("%w: not a neural model (it must begin with %q)", ErrModel, magic)
	}
	if v := binary.LittleEndian.Uint16(b[len(magic):]); v != version {
		return nil, fmt.Errorf("%w: version %d, this program reads version %d", ErrModel, v, version)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)); got != sum {
		return nil, fmt.Errorf("%w: checksum %08x, must be %08x; the file is damaged", ErrModel, got, sum)
	}
	return body[head:], nil
}

// read takes everything before the optimizer's state.
func (c *core) read(r *reader) {
	hidden, inputs, outputs := r.u8(), r.u16(), r.u16()
	if r.bad == nil && (inputs < 1 || inputs > MaxInputs || outputs < 1 || outputs > MaxOutputs || hidden > MaxLayers) {
		r.fail("%d hidden layers, %d inputs and %d outputs, must be at most %d, %d and %d", hidden, inputs, outputs, MaxLayers, MaxInputs, MaxOutputs)
	}
	if r.bad != nil {
		return
	}
	for range hidden {
		c.cfg.Hidden = append(c.cfg.Hidden, r.u16())
	}
	for _, n := range c.cfg.counts() {
		*n.p = r.u16()
	}
	c.cfg.Seed, c.updates = r.u64(), r.u64()
	for _, s := range c.cfg.settings() {
		*s.p = r.raw()
	}
	for range inputs {
		col := column{kind: r.kind(), mean: r.float("input mean", -maxMoment, maxMoment), scale: r.float("input scale", 0, maxMoment)}
		c.cols, c.cfg.Inputs = append(c.cols, col), append(c.cfg.Inputs, col.kind)
	}
	for range outputs {
		t := target{kind: r.kind()}
		t.mean = r.float("label mean", -maxMoment, maxMoment)
		t.scale = r.float("label scale", 1e-100, maxMoment)
		t.floor = r.float("label floor", 1e-100, maxMoment)
		t.weight = r.float("label weight", 1, mostWeight)
		t.lo, t.hi = r.labels(t.kind)
		t.bound(c.cfg.Extrapolate)
		c.targets, c.cfg.Outputs = append(c.targets, t), append(c.cfg.Outputs, t.kind)
	}
	if err := c.cfg.Validate(); r.bad == nil && err != nil {
		r.fail("%w", err)
	}
}

// labels reads the range of labels seen.
func (r *reader) labels(kind Scale) (lo, hi float64) {
	low := -MaxValue
	if kind == ScaleLog {
		low = minLogged
	}
	lo = r.float("smallest label", low, MaxValue)
	return lo, r.float("largest label", lo, MaxValue)
}

// expect checks that the rest is the state of n parameters, before anything of
// that size is allocated.
func (r *reader) expect(n int) bool {
	if want := 8 * (2 + 3*n); len(r.b) != want {
		r.fail("%d bytes of parameters, must be %d", len(r.b), want)
	}
	return r.bad == nil
}

func (c *core) readState(r *reader) {
	c.opt.pow1, c.opt.pow2 = r.float("optimizer's first power", 0, 1), r.float("optimizer's second power", 0, 1)
	r.floats("parameter", c.params, -maxParam, maxParam)
	r.floats("optimizer's first moment", c.opt.m, -math.MaxFloat64, math.MaxFloat64)
	r.floats("optimizer's second moment", c.opt.v, 0, math.MaxFloat64)
}
