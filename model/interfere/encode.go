package interfere

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// MaxModelBytes bounds an encoded Model: it travels through Raft.
const MaxModelBytes = 64 << 10

// modelVersion changes when the meaning or number of fields does.
const modelVersion = 1

const modelMagic = "BIFR"

// ErrModel is wrapped by the errors of Decode.
var ErrModel = errors.New("bad interference model")

// Encode encodes m as magic, version, five lists with their lengths, all little
// endian, and a CRC-32C of all before it. Equal models have equal bytes; the bounds
// of the lists keep them below MaxModelBytes.
func (m *Model) Encode() []byte {
	if m == nil {
		m = &Model{}
	}
	le := binary.LittleEndian
	b := append(make([]byte, 0, 4096), modelMagic...)
	b = le.AppendUint16(b, modelVersion)
	b = le.AppendUint16(b, uint16(len(m.classes)))
	for i := range m.classes {
		b = m.classes[i].append(b)
	}
	b = le.AppendUint16(b, uint16(len(m.types)))
	for _, t := range m.types {
		b = append(appendName(b, t.name), t.class)
	}
	b = le.AppendUint16(b, uint16(len(m.effects)))
	for i := range m.effects {
		e := &m.effects[i]
		b = le.AppendUint64(b, e.key.id)
		b = append(b, e.key.class, byte(e.key.mode))
		b = appendFloat(appendFloat(b, float64(e.sens)), float64(e.aggr))
		b = le.AppendUint16(le.AppendUint16(b, e.asVictim), e.asOther)
	}
	b = le.AppendUint16(b, uint16(len(m.pairs)))
	for i := range m.pairs {
		p := &m.pairs[i]
		b = le.AppendUint16(le.AppendUint16(b, p.victim), p.other)
		b = appendFloat(append(b, p.typ), float64(p.value))
		b = le.AppendUint16(b, p.n)
	}
	typeAt := m.typeIndex()
	b = le.AppendUint16(b, uint16(len(m.advice)))
	for i := range m.advice {
		a := &m.advice[i]
		b = append(b, byte(typeAt[a.GPUType]), byte(a.Mode))
		b = le.AppendUint16(le.AppendUint16(b, uint16(a.Pairs)), uint16(a.Losing))
		b = le.AppendUint16(b, uint16(a.Jobs))
		b = appendFloat(appendFloat(b, a.MeanSum), a.StdErr)
	}
	return le.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func appendFloat(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
}

// appendName appends a name of at most maxTypeName bytes, prefixed with its length.
func appendName(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

func (c *class) append(b []byte) []byte {
	b = appendName(b, c.name)
	for mode := range c.coefs {
		for _, v := range c.coefs[mode].array() {
			b = appendFloat(b, v)
		}
		b = binary.LittleEndian.AppendUint16(b, c.seen[mode])
	}
	return b
}

// Decode decodes the result of Encode and refuses everything else: wrong length or
// version, corruption, NaN, values out of range, lists too long, duplicate entries.
// Errors wrap ErrModel.
func Decode(b []byte) (*Model, error) {
	head := len(modelMagic) + 2
	switch {
	case len(b) > MaxModelBytes:
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrModel, len(b), MaxModelBytes)
	case len(b) < head+4 || string(b[:len(modelMagic)]) != modelMagic:
		return nil, fmt.Errorf("%w: not an interference model (it must begin with %q)", ErrModel, modelMagic)
	}
	if v := binary.LittleEndian.Uint16(b[len(modelMagic):]); v != modelVersion {
		return nil, fmt.Errorf("%w: version %d, this program reads version %d", ErrModel, v, modelVersion)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)); got != sum {
		return nil, fmt.Errorf("%w: checksum %08x, must be %08x; the file is damaged", ErrModel, got, sum)
	}
	r := &reader{b: body[head:]}
	m := &Model{}
	m.readClasses(r)
	m.readTypes(r)
	m.readEffects(r)
	m.readPairs(r)
	m.readAdvice(r)
	if len(r.b) != 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	if r.err != nil {
		return nil, r.err
	}
	m.index()
	return m, nil
}

// reader takes fields off b. After the first error it returns zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrModel, fmt.Sprintf(format, args...))
	}
}

func (r *reader) take(n int) []byte {
	if r.err != nil || len(r.b) < n {
		r.fail("cut short")
		return make([]byte, n)
	}
	t := r.b[:n]
	r.b = r.b[n:]
	return t
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// below reads a byte that must be less than n.
func (r *reader) below(n int, what string) uint8 {
	v := r.u8()
	if int(v) >= n {
		r.fail("%s %d, must be below %d", what, v, n)
		return 0
	}
	return v
}

// f32 reads a value between low and high; it is never NaN or minus zero.
func (r *reader) f32(low, high float64, what string) float64 {
	bits := binary.LittleEndian.Uint32(r.take(4))
	v := float64(math.Float32frombits(bits))
	// Encode rounded its values, and those at the ends of the range as well.
	if !(v >= narrow(low) && v <= narrow(high)) || bits == 1<<31 {
		r.fail("%s is %v, must be %v to %v", what, v, low, high)
	}
	return v
}

// list reads a length and calls each for every entry.
func (r *reader) list(limit int, what string, each func()) {
	n := int(r.u16())
	if n > limit {
		r.fail("%d %s, at most %d are allowed", n, what, limit)
	}
	for i := 0; i < n && r.err == nil; i++ {
		each()
	}
}

func (r *reader) name(what string) string {
	n := int(r.u8())
	if n == 0 || n > maxTypeName {
		r.fail("name of a %s has %d bytes, must be 1 to %d", what, n, maxTypeName)
		return ""
	}
	return string(r.take(n))
}

func (m *Model) readClasses(r *reader) {
	seen := make(map[string]struct{})
	r.list(maxClasses, "classes", func() {
		c := class{name: r.name("class")}
		if _, twice := seen[c.name]; twice {
			r.fail("class %q twice", c.name)
		}
		seen[c.name] = struct{}{}
		for mode := range c.coefs {
			var a [coefficientCount]float64
			for k := range a {
				a[k] = r.f32(0, MaxCoefficient, coefficientNames[k])
			}
			c.coefs[mode] = fromArray(a)
			c.seen[mode] = r.u16()
		}
		m.classes = append(m.classes, c)
	})
}

func (m *Model) readTypes(r *reader) {
	seen := make(map[string]struct{})
	r.list(maxTypes, "types", func() {
		t := gpuType{name: r.name("type"), class: r.below(len(m.classes), "class")}
		if r.err != nil {
			return
		}
		if _, twice := seen[t.name]; twice {
			r.fail("type %q twice", t.name)
		}
		seen[t.name] = struct{}{}
		if c := m.classes[t.class].name; c != className(t.name) {
			r.fail("type %q in class %q", t.name, c)
		}
		m.types = append(m.types, t)
	})
}

func (m *Model) readEffects(r *reader) {
	seen := make(map[jobKey]struct{})
	r.list(MaxJobs, "jobs", func() {
		e := effect{key: jobKey{id: r.u64(), class: r.below(len(m.classes), "class"), mode: Mode(r.below(modes, "mode"))}}
		if _, twice := seen[e.key]; twice || e.key.id == 0 {
			r.fail("job %016x twice or nameless", e.key.id)
		}
		seen[e.key] = struct{}{}
		e.sens = float32(r.f32(-maxBend, maxBend, "sensitivity"))
		e.aggr = float32(r.f32(-maxBend, maxBend, "aggression"))
		e.asVictim, e.asOther = r.u16(), r.u16()
		m.effects = append(m.effects, e)
	})
}

func (m *Model) readPairs(r *reader) {
	seen := make(map[uint64]struct{})
	r.list(MaxPairs, "pairs", func() {
		p := pairEffect{victim: r.u16(), other: r.u16(), typ: r.below(len(m.types), "type")}
		if int(max(p.victim, p.other)) >= len(m.effects) {
			r.fail("pair of jobs %d and %d, must be below %d", p.victim, p.other, len(m.effects))
		}
		k := packPair(p.victim, p.other, int16(p.typ))
		if _, twice := seen[k]; twice {
			r.fail("pair of jobs %d and %d twice", p.victim, p.other)
		}
		seen[k] = struct{}{}
		p.value = float32(r.f32(-maxBend, maxBend, "history"))
		p.n = r.u16()
		m.pairs = append(m.pairs, p)
	})
}

func (m *Model) readAdvice(r *reader) {
	type where struct {
		typ  uint8
		mode Mode
	}
	seen := make(map[where]struct{})
	r.list(maxTypes*modes, "pieces of advice", func() {
		w := where{r.below(len(m.types), "type"), Mode(r.below(modes, "mode"))}
		if r.err != nil {
			return
		}
		if _, twice := seen[w]; twice {
			r.fail("advice on type %q in mode %s twice", m.types[w.typ].name, w.mode)
		}
		seen[w] = struct{}{}
		a := Advice{GPUType: m.types[w.typ].name, Mode: w.mode, Pairs: int(r.u16()), Losing: int(r.u16()), Jobs: int(r.u16())}
		if a.Pairs == 0 || a.Losing > a.Pairs || a.Jobs == 0 || a.Jobs > 2*a.Pairs {
			r.fail("%d of %d pairs of %d jobs lose", a.Losing, a.Pairs, a.Jobs)
		}
		a.MeanSum = r.f32(0, 2*maxSpeed, "sum of speeds")
		a.StdErr = r.f32(0, 2*maxSpeed, "standard error")
		a.judge()
		m.advice = append(m.advice, a)
	})
}
