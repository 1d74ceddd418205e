// Package zoo describes well-known neural networks as ONNX graphs without
// weights: initializers carry dimensions and point at external data that does
// not exist. The files feed the tests of graph and model, simulated workloads
// and demos. Generation is deterministic.
package zoo

import (
	"encoding/binary"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// opset is the operator set of the files: the first with Gelu.
const opset = 20

// Element types of TensorProto.
const (
	elemFloat = 1
	elemInt64 = 7
)

// val is a value of the graph under construction. dims[0] is -1 for the symbolic
// batch.
type val struct {
	name string
	dims []int64
}

func (v val) last() int64 { return v.dims[len(v.dims)-1] }

// file builds one GraphProto: each value and each weight has its own name, kept
// short ("a12" for results, "w7" for weights) for small files.
type file struct {
	nodes, inits, inputs, outputs []byte
	nval, ninit                   int
}

// fresh returns a value that some node is about to produce.
func (g *file) fresh(dims ...int64) val {
	g.nval++
	return val{name: "a" + strconv.Itoa(g.nval), dims: dims}
}

func appendMsg(dst []byte, num protowire.Number, msg []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), msg)
}

func appendStr(dst []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, num, protowire.BytesType), s)
}

func appendInt(dst []byte, num protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), uint64(v))
}

// weight declares an initializer with external data.
func (g *file) weight(dims ...int64) string { return g.tensor("w", elemFloat, dims, elsewhere) }

// externalInts declares an index table with external data.
func (g *file) externalInts(dims ...int64) string { return g.tensor("w", elemInt64, dims, elsewhere) }

// ints declares a constant of shape arithmetic, with its value.
func (g *file) ints(vals ...int64) string {
	var raw []byte
	for _, v := range vals {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return g.tensor("w", elemInt64, []int64{int64(len(vals))}, func(t []byte) []byte { return appendMsg(t, 9, raw) })
}

// scalar declares a constant that is not a parameter: its value is in the file.
func (g *file) scalar(raw ...byte) string {
	return g.tensor("c", elemFloat, nil, func(t []byte) []byte { return appendMsg(t, 9, raw) })
}

// tensor declares an initializer, which data completes.
func (g *file) tensor(letter string, elem int64, dims []int64, data func(t []byte) []byte) string {
	g.ninit++
	name := letter + strconv.Itoa(g.ninit)
	var t []byte
	for _, d := range dims {
		t = appendInt(t, 1, d)
	}
	t = appendStr(appendInt(t, 2, elem), 8, name)
	g.inits = appendMsg(g.inits, 5, data(t))
	return name
}

// elsewhere refers to data in a file that does not exist.
func elsewhere(t []byte) []byte {
	t = appendMsg(t, 13, appendStr(appendStr(nil, 1, "location"), 2, "w")) // external_data
	return appendInt(t, 14, 1)                                             // data_location = EXTERNAL
}

// attr is one attribute of a node.
type attr struct {
	name string
	ints []int64
	i    int64
}

func list(name string, v ...int64) attr { return attr{name: name, ints: v} }
func num(name string, v int64) attr     { return attr{name: name, i: v} }

func (a attr) encode() []byte {
	m := appendStr(nil, 1, a.name)
	if a.ints == nil {
		return appendInt(appendInt(m, 3, a.i), 20, 2) // INT
	}
	for _, v := range a.ints {
		m = appendInt(m, 8, v)
	}
	return appendInt(m, 20, 7) // INTS
}

// node appends an operator.
func (g *file) node(op string, in []string, out []val, attrs ...attr) {
	var m []byte
	for _, s := range in {
		m = appendStr(m, 1, s)
	}
	for _, v := range out {
		m = appendStr(m, 2, v.name)
	}
	m = appendStr(m, 4, op)
	for _, a := range attrs {
		m = appendMsg(m, 5, a.encode())
	}
	g.nodes = appendMsg(g.nodes, 1, m)
}

// valueInfo encodes a ValueInfoProto; -1 becomes the symbolic dimension N.
func valueInfo(v val, elem int64) []byte {
	var shape []byte
	for _, d := range v.dims {
		dim := appendInt(nil, 1, d)
		if d < 0 {
			dim = appendStr(nil, 2, "N")
		}
		shape = appendMsg(shape, 1, dim)
	}
	typ := appendMsg(appendInt(nil, 1, elem), 2, shape)
	return appendMsg(appendStr(nil, 1, v.name), 2, appendMsg(nil, 1, typ))
}

func (g *file) input(name string, elem int64, dims ...int64) val {
	v := val{name: name, dims: dims}
	g.inputs = appendMsg(g.inputs, 11, valueInfo(v, elem))
	return v
}

func (g *file) image(size int64) val { return g.input("x", elemFloat, -1, 3, size, size) }

func (g *file) output(v val) { g.outputs = appendMsg(g.outputs, 12, valueInfo(v, elemFloat)) }

// model wraps the graph in a ModelProto.
func (g *file) model(name string) []byte {
	graph := append([]byte{}, g.nodes...)
	graph = appendStr(graph, 2, name)
	graph = append(graph, g.inits...)
	graph = append(graph, g.inputs...)
	graph = append(graph, g.outputs...)
	m := appendInt(nil, 1, 9) // ir_version
	m = appendStr(m, 2, "berth zoo")
	m = appendMsg(m, 7, graph)
	return appendMsg(m, 8, appendInt(appendStr(nil, 1, ""), 2, opset))
}
