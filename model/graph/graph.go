// Package graph computes the cost of a neural network from its ONNX file without
// running it and without reading its weights: parameter bytes, forward FLOPs, the
// activations that training keeps, the largest tensors. It also turns a graph into
// the allocate, free and compute events of one step, which simulated workloads
// replay.
//
// The wire format is onnx.proto of https://github.com/onnx/onnx (IR version 3 and
// later). Everything here treats the file as hostile: memory is bounded, products
// saturate, and nothing panics.
package graph

import (
	"errors"
	"math"
	"strings"
)

// Limits on what Read accepts. A graph beyond them is refused with ErrLimit.
const (
	// MaxKeptBytes bounds the graph description kept in memory (names,
	// attributes, shapes; weights do not count, they are skipped).
	MaxKeptBytes = 4 << 20
	// MaxNodes bounds the operators, including those of subgraphs.
	MaxNodes = 50_000
	// MaxDepth bounds how deeply graphs nest in the attributes of If and Loop.
	MaxDepth = 64
	// MaxDim is the largest single dimension of a tensor.
	MaxDim = 1 << 31
	// MaxRank is the largest number of dimensions of a tensor.
	MaxRank = 16
)

// ErrLimit is wrapped by the errors of graphs larger than the limits.
var ErrLimit = errors.New("graph is larger than the reader allows")

// ErrMalformed is wrapped by the errors of files that are not ONNX.
var ErrMalformed = errors.New("not a well-formed ONNX file")

// DType is the element type of a tensor, numbered as TensorProto.DataType.
type DType int32

// Element types that the analysis tells apart.
const (
	Float    DType = 1
	Uint8    DType = 2
	Int8     DType = 3
	Int32    DType = 6
	Int64    DType = 7
	Bool     DType = 9
	Float16  DType = 10
	Double   DType = 11
	BFloat16 DType = 16
)

// Bytes returns the size of one element: 4 for unknown types, 1 for four-bit types
// (rounded up).
func (d DType) Bytes() int64 {
	switch d {
	case Uint8, Int8, Bool, 17, 18, 19, 20, 21, 22, 23:
		return 1
	case 4, 5, Float16, BFloat16:
		return 2
	case Int64, Double, 13, 14:
		return 8
	case 15:
		return 16
	default:
		return 4
	}
}

// IsFloat reports whether values of this type follow the training precision.
func (d DType) IsFloat() bool {
	return d == Float || d == Float16 || d == Double || d == BFloat16
}

// Dim is one dimension as the file states it: a number, a name to be bound (Param),
// or unknown (Value < 0 and no Param).
type Dim struct {
	Value int64
	Param string
}

// Value describes a graph input, an output or an intermediate result.
type Value struct {
	Name  string
	Type  DType
	Dims  []Dim
	Known bool // the file gives a shape, even of rank 0
}

// Tensor is an initializer or a constant. Only small values are kept, because only
// shape arithmetic needs them.
type Tensor struct {
	Name   string
	Type   DType
	Dims   []int64
	Ints   []int64
	Floats []float32
}

// Elems returns the number of elements, saturating at MaxInt64.
func (t *Tensor) Elems() int64 { return product(t.Dims) }

// Attr is one attribute of a node. Only the field of its kind is set.
type Attr struct {
	Name   string
	I      int64
	S      string
	Ints   []int64
	Floats []float32
	Tensor *Tensor
	Graph  *Graph
}

// Node is one operator.
type Node struct {
	Op      string
	Domain  string
	Inputs  []string
	Outputs []string
	Attrs   []Attr
}

// Graph is the part of an ONNX model that determines its cost.
type Graph struct {
	Name         string
	Nodes        []Node
	Initializers []Tensor
	Inputs       []Value
	Outputs      []Value
	Values       []Value // declared shapes of intermediate results
}

func (n *Node) attr(name string) *Attr {
	for i := range n.Attrs {
		if n.Attrs[i].Name == name {
			return &n.Attrs[i]
		}
	}
	return nil
}

func (n *Node) attrInt(name string, def int64) int64 {
	if a := n.attr(name); a != nil {
		return a.I
	}
	return def
}

func (n *Node) attrInts(name string) []int64 {
	if a := n.attr(name); a != nil {
		return a.Ints
	}
	return nil
}

func (n *Node) attrString(name string) string {
	if a := n.attr(name); a != nil {
		return a.S
	}
	return ""
}

// satAdd adds two non-negative numbers, saturating at MaxInt64.
func satAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// satMul multiplies two non-negative numbers, saturating at MaxInt64.
func satMul(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	if a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

// product multiplies dimensions, saturating; a negative one is unknown and counts
// as 1.
func product(dims []int64) int64 {
	p := int64(1)
	for _, d := range dims {
		if d < 0 {
			d = 1
		}
		p = satMul(p, d)
	}
	return p
}

// Precision is the number format in which a job computes.
type Precision string

// The precisions that the cost rules know. PrecisionFile takes each tensor as
// the file declares it. PrecisionAMP is automatic mixed precision: float32
// weights, gradients and optimizer states, two-byte activations.
const (
	PrecisionFile Precision = ""
	FP32          Precision = "fp32"
	TF32          Precision = "tf32"
	FP16          Precision = "fp16"
	BF16          Precision = "bf16"
	AMP           Precision = "amp"
	INT8          Precision = "int8"
)

// Precisions returns the names that users may give.
func Precisions() []Precision { return []Precision{FP32, TF32, FP16, BF16, AMP, INT8} }

// ActivationBytes returns the size of one activation element, given its size in the
// file.
func (p Precision) ActivationBytes(file int64) int64 {
	switch p {
	case FP32, TF32:
		return 4
	case FP16, BF16, AMP:
		return 2
	case INT8:
		return 1
	default:
		return file
	}
}

// WeightBytes returns the size of one weight element, given its size in the file.
func (p Precision) WeightBytes(file int64) int64 {
	if p == AMP {
		return 4
	}
	return p.ActivationBytes(file)
}

// Tensor reports whether matrix products of this precision run on tensor cores.
func (p Precision) Tensor() bool {
	return p == FP16 || p == BF16 || p == AMP || p == INT8
}

// Optimizer names an optimizer by the states that it keeps per parameter.
type Optimizer string

// The optimizers that the cost rules know; OptimizerNone means inference or
// an optimizer without state.
const (
	OptimizerNone Optimizer = ""
	SGD           Optimizer = "sgd"
	Momentum      Optimizer = "momentum"
	Adam          Optimizer = "adam"
	AdamW         Optimizer = "adamw"
	RMSProp       Optimizer = "rmsprop"
	Adagrad       Optimizer = "adagrad"
	Adafactor     Optimizer = "adafactor"
)

// Optimizers returns the names that users may give.
func Optimizers() []Optimizer {
	return []Optimizer{SGD, Momentum, Adam, AdamW, RMSProp, Adagrad, Adafactor}
}

// States returns how many values the optimizer keeps per parameter. Adafactor's row
// and column sums are small enough to count as none.
func (o Optimizer) States() int64 {
	switch o {
	case Adam, AdamW:
		return 2
	case Momentum, RMSProp, Adagrad:
		return 1
	default:
		return 0
	}
}

// defaultDomain reports whether an operator is one of ONNX's own.
func defaultDomain(d string) bool { return d == "" || strings.EqualFold(d, "ai.onnx") }
