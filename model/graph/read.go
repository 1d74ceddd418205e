package graph

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Tensors with more values than this keep only their shape.
const (
	maxConstInts   = 1024
	maxConstFloats = 64
	maxConstRaw    = 8 * maxConstInts
	maxAttrInts    = 4096
)

// Read reads the graph of an ONNX model. It reads r once, forward, seeks past
// weights if r can seek, never opens external data, and needs memory for the
// description only. Errors wrap ErrMalformed, ErrLimit or r's own.
func Read(r io.Reader) (*Graph, error) {
	d := &reader{w: newWire(r)}
	var g *Graph
	err := d.w.fields(math.MaxInt64, func(num protowire.Number, typ protowire.Type) (bool, error) {
		if num != 7 || typ != protowire.BytesType { // ModelProto.graph
			return false, nil
		}
		var err error
		g, err = d.graph(math.MaxInt64, 1)
		return true, err
	})
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, fmt.Errorf("%w: it holds no graph; is it a model saved with torch.onnx.export?", ErrMalformed)
	}
	return g, nil
}

type reader struct {
	w     *wire
	nodes int
}

func (d *reader) graph(end int64, depth int) (*Graph, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("%w: graphs nested more than %d deep", ErrLimit, MaxDepth)
	}
	g := &Graph{}
	err := d.w.sub(end, func(end int64, num protowire.Number, typ protowire.Type) (bool, error) {
		if typ != protowire.BytesType {
			return false, nil
		}
		var err error
		switch num {
		case 1:
			var n Node
			if n, err = d.node(end, depth); err == nil {
				g.Nodes = append(g.Nodes, n)
			}
		case 2:
			g.Name, err = d.w.string(end)
		case 5:
			var t Tensor
			if t, err = d.tensor(end); err == nil {
				g.Initializers = append(g.Initializers, t)
			}
		case 11:
			g.Inputs, err = d.value(end, g.Inputs)
		case 12:
			g.Outputs, err = d.value(end, g.Outputs)
		case 13:
			g.Values, err = d.value(end, g.Values)
		default:
			return false, nil
		}
		return true, err
	})
	return g, err
}

func (d *reader) node(end int64, depth int) (Node, error) {
	var n Node
	d.nodes++
	if d.nodes > MaxNodes {
		return n, fmt.Errorf("%w: more than %d operators", ErrLimit, MaxNodes)
	}
	if err := d.w.keep(64); err != nil {
		return n, err
	}
	err := d.w.sub(end, func(end int64, num protowire.Number, typ protowire.Type) (bool, error) {
		if typ != protowire.BytesType {
			return false, nil
		}
		var err error
		var s string
		switch num {
		case 1:
			s, err = d.w.string(end)
			n.Inputs = append(n.Inputs, s)
		case 2:
			s, err = d.w.string(end)
			n.Outputs = append(n.Outputs, s)
		case 4:
			n.Op, err = d.w.string(end)
		case 5:
			var a Attr
			a, err = d.attr(end, depth)
			n.Attrs = append(n.Attrs, a)
		case 7:
			n.Domain, err = d.w.string(end)
		default: // the node's own name and doc string do not matter
			return false, nil
		}
		return true, err
	})
	return n, err
}

func (d *reader) attr(end int64, depth int) (Attr, error) {
	var a Attr
	if err := d.w.keep(96); err != nil {
		return a, err
	}
	err := d.w.sub(end, func(end int64, num protowire.Number, typ protowire.Type) (bool, error) {
		var err error
		switch {
		case num == 1 && typ == protowire.BytesType:
			a.Name, err = d.w.string(end)
		case num == 3 && typ == protowire.VarintType:
			var v uint64
			v, err = d.w.varint(end)
			a.I = int64(v)
		case num == 4 && typ == protowire.BytesType:
			a.S, err = d.w.string(end)
		case num == 5 && typ == protowire.BytesType:
			var t Tensor
			t, err = d.tensor(end)
			a.Tensor = &t
		case num == 6 && typ == protowire.BytesType:
			a.Graph, err = d.graph(end, depth+1)
		case num == 7:
			a.Floats, _, err = d.w.floats(a.Floats, typ, end, maxConstFloats)
		case num == 8:
			a.Ints, _, err = d.w.varints(a.Ints, typ, end, maxAttrInts)
		default:
			return false, nil
		}
		return true, err
	})
	return a, err
}

// tensor reads an initializer: its dims and type, and its values only if few.
func (d *reader) tensor(end int64) (Tensor, error) {
	var t Tensor
	var raw []byte
	full := false
	if err := d.w.keep(96); err != nil {
		return t, err
	}
	err := d.w.sub(end, func(end int64, num protowire.Number, typ protowire.Type) (bool, error) {
		var err error
		var f bool
		switch {
		case num == 1:
			t.Dims, f, err = d.w.varints(t.Dims, typ, end, MaxRank)
			if err == nil && f {
				err = fmt.Errorf("%w: tensor %q has more than %d dimensions", ErrLimit, t.Name, MaxRank)
			}
		case num == 2 && typ == protowire.VarintType:
			var v uint64
			v, err = d.w.varint(end)
			t.Type = DType(int32(v))
		case num == 4:
			t.Floats, f, err = d.w.floats(t.Floats, typ, end, maxConstFloats)
			full = full || f
		case num == 5 || num == 7:
			t.Ints, f, err = d.w.varints(t.Ints, typ, end, maxConstInts)
			full = full || f
		case num == 8 && typ == protowire.BytesType:
			t.Name, err = d.w.string(end)
		case num == 9 && typ == protowire.BytesType:
			raw, err = d.raw(end)
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return t, err
	}
	for _, v := range t.Dims {
		if v < 0 || v > MaxDim {
			return t, fmt.Errorf("%w: tensor %q has a dimension of %d; allowed are 0 to %d", ErrLimit, t.Name, v, int64(MaxDim))
		}
	}
	if full {
		t.Ints, t.Floats = nil, nil
	}
	t.setRaw(raw)
	return t, nil
}

// raw reads raw_data if it is small and seeks past it otherwise.
func (d *reader) raw(end int64) ([]byte, error) {
	b, err := d.w.br.Peek(protobufVarintMax)
	if n, used := protowire.ConsumeVarint(b); used > 0 && n <= maxConstRaw {
		return d.w.bytes(end)
	} else if used < 0 && err == nil {
		return nil, d.w.malformed("bad number")
	}
	return nil, d.w.skip(protowire.BytesType, end)
}

// setRaw decodes raw_data, which is little-endian, for the types that shape
// arithmetic uses.
func (t *Tensor) setRaw(raw []byte) {
	switch {
	case len(raw) == 0:
	case t.Type == Int64 && len(raw)%8 == 0:
		t.Ints = make([]int64, len(raw)/8)
		for i := range t.Ints {
			t.Ints[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
		}
	case t.Type == Int32 && len(raw)%4 == 0:
		t.Ints = make([]int64, len(raw)/4)
		for i := range t.Ints {
			t.Ints[i] = int64(int32(binary.LittleEndian.Uint32(raw[4*i:])))
		}
	case t.Type == Float && len(raw)%4 == 0 && len(raw) <= 4*maxConstFloats:
		t.Floats = make([]float32, len(raw)/4)
		for i := range t.Floats {
			t.Floats[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	}
}

// value appends one ValueInfoProto to vs.
func (d *reader) value(end int64, vs []Value) ([]Value, error) {
	var v Value
	if err := d.w.keep(64); err != nil {
		return vs, err
	}
	err := d.w.sub(end, func(end int64, num protowire.Number, typ protowire.Type) (bool, error) {
		if typ != protowire.BytesType {
			return false, nil
		}
		var err error
		switch num {
		case 1:
			v.Name, err = d.w.string(end)
		case 2: // TypeProto
			err = d.w.sub(end, func(end int64, num protowire.Number, typ protowire.Type) (bool, error) {
				if num != 1 || typ != protowire.BytesType { // only tensors; maps and sequences stay unknown
					return false, nil
				}
				return true, d.tensorType(end, &v)
			})
		default:
			return false, nil
		}
		return true, err
	})
	return append(vs, v), err
}

func (d *reader) tensorType(end int64, v *Value) error {
	return d.w.sub(end, func(end int64, num protowire.Number, typ protowire.Type) (bool, error) {
		switch {
		case num == 1 && typ == protowire.VarintType:
			t, err := d.w.varint(end)
			v.Type = DType(int32(t))
			return true, err
		case num == 2 && typ == protowire.BytesType:
			v.Known = true
			return true, d.w.sub(end, func(end int64, num protowire.Number, typ protowire.Type) (bool, error) {
				if num != 1 || typ != protowire.BytesType {
					return false, nil
				}
				return true, d.dim(end, v)
			})
		}
		return false, nil
	})
}

func (d *reader) dim(end int64, v *Value) error {
	dim := Dim{Value: -1}
	if err := d.w.keep(32); err != nil {
		return err
	}
	err := d.w.sub(end, func(end int64, num protowire.Number, typ protowire.Type) (bool, error) {
		var err error
		switch {
		case num == 1 && typ == protowire.VarintType:
			var n uint64
			n, err = d.w.varint(end)
			dim.Value = int64(n)
		case num == 2 && typ == protowire.BytesType:
			dim.Param, err = d.w.string(end)
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return err
	}
	if len(v.Dims) >= MaxRank {
		return fmt.Errorf("%w: value %q has more than %d dimensions", ErrLimit, v.Name, MaxRank)
	}
	if dim.Value > MaxDim {
		return fmt.Errorf("%w: value %q has a dimension of %d; allowed are 0 to %d", ErrLimit, v.Name, dim.Value, int64(MaxDim))
	}
	v.Dims = append(v.Dims, dim)
	return nil
}
