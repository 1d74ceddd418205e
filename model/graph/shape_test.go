package graph

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

func ints(name string, v ...int64) Attr { return Attr{Name: name, Ints: v} }
func num(name string, v int64) Attr     { return Attr{Name: name, I: v} }

func constant(name string, v ...int64) Tensor {
	return Tensor{Name: name, Type: Int64, Dims: []int64{int64(len(v))}, Ints: v}
}

func weight(name string, dims ...int64) Tensor { return Tensor{Name: name, Type: Float, Dims: dims} }

func TestShapes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		op    string
		x     []int64 // first input
		more  []Tensor
		attrs []Attr
		want  []int64 // nil: not understood
	}{
		{"conv", "Conv", []int64{2, 3, 224, 224}, []Tensor{weight("w", 64, 3, 7, 7)}, []Attr{ints("strides", 2, 2), ints("pads", 3, 3, 3, 3)}, []int64{2, 64, 112, 112}},
		{"conv dilated", "Conv", []int64{1, 1, 9}, []Tensor{weight("w", 1, 1, 3)}, []Attr{ints("dilations", 2)}, []int64{1, 1, 5}},
		{"conv same", "Conv", []int64{1, 3, 5, 5}, []Tensor{weight("w", 4, 3, 3, 3)}, []Attr{ints("strides", 2, 2), {Name: "auto_pad", S: "SAME_UPPER"}}, []int64{1, 4, 3, 3}},
		{"conv with stride 0", "Conv", []int64{1, 3, 5, 5}, []Tensor{weight("w", 4, 3, 3, 3)}, []Attr{ints("strides", 0, 0)}, nil},
		{"conv larger than the image", "Conv", []int64{1, 3, 2, 2}, []Tensor{weight("w", 4, 3, 3, 3)}, nil, nil},
		{"conv transposed", "ConvTranspose", []int64{1, 8, 4, 4}, []Tensor{weight("w", 8, 2, 2, 2)}, []Attr{ints("strides", 2, 2)}, []int64{1, 2, 8, 8}},
		{"max pool", "MaxPool", []int64{1, 8, 112, 112}, nil, []Attr{ints("kernel_shape", 3, 3), ints("strides", 2, 2), ints("pads", 1, 1, 1, 1)}, []int64{1, 8, 56, 56}},
		{"max pool rounded up", "MaxPool", []int64{1, 8, 6, 6}, nil, []Attr{ints("kernel_shape", 3, 3), ints("strides", 2, 2), num("ceil_mode", 1)}, []int64{1, 8, 3, 3}},
		{"global pool", "GlobalAveragePool", []int64{2, 8, 7, 7}, nil, nil, []int64{2, 8, 1, 1}},
		{"gemm", "Gemm", []int64{2, 5}, []Tensor{weight("w", 7, 5)}, []Attr{num("transB", 1)}, []int64{2, 7}},
		{"matmul broadcast", "MatMul", []int64{2, 4, 5}, []Tensor{weight("w", 5, 7)}, nil, []int64{2, 4, 7}},
		{"matmul by a vector", "MatMul", []int64{2, 4, 5}, []Tensor{weight("w", 5)}, nil, []int64{2, 4}},
		{"matmul that does not fit", "MatMul", []int64{2, 4, 5}, []Tensor{weight("w", 6, 7)}, nil, nil},
		{"add broadcast", "Add", []int64{2, 1, 5}, []Tensor{weight("w", 4, 1)}, nil, []int64{2, 4, 5}},
		{"add that does not fit", "Add", []int64{2, 3}, []Tensor{weight("w", 4)}, nil, nil},
		{"reshape", "Reshape", []int64{2, 3, 4}, []Tensor{constant("s", 0, -1)}, nil, []int64{2, 12}},
		{"reshape with the batch written in", "Reshape", []int64{2, 3, 4}, []Tensor{constant("s", 1, 12)}, nil, []int64{2, 12}},
		{"reshape to nothing", "Reshape", []int64{2, 3}, []Tensor{constant("s", 4, 0)}, []Attr{num("allowzero", 1)}, nil},
		{"reshape twice unknown", "Reshape", []int64{2, 3}, []Tensor{constant("s", -1, -1)}, nil, nil},
		{"flatten", "Flatten", []int64{2, 3, 4}, nil, nil, []int64{2, 12}},
		{"transpose", "Transpose", []int64{2, 3, 4}, nil, []Attr{ints("perm", 2, 0, 1)}, []int64{4, 2, 3}},
		{"transpose beyond the rank", "Transpose", []int64{2, 3}, nil, []Attr{ints("perm", 0, 9)}, nil},
		{"concat", "Concat", []int64{2, 3}, []Tensor{weight("w", 2, 5)}, []Attr{num("axis", -1)}, []int64{2, 8}},
		{"split", "Split", []int64{2, 9}, nil, []Attr{num("axis", 1), num("num_outputs", 1)}, []int64{2, 9}},
		{"slice", "Slice", []int64{2, 10}, []Tensor{constant("s", -3), constant("e", math.MaxInt64), constant("a", 1)}, nil, []int64{2, 3}},
		{"slice backwards", "Slice", []int64{5}, []Tensor{constant("s", -1), constant("e", math.MinInt64), constant("a", 0), constant("st", -2)}, nil, []int64{3}},
		{"squeeze", "Squeeze", []int64{2, 1, 3}, []Tensor{constant("a", 1)}, nil, []int64{2, 3}},
		{"unsqueeze", "Unsqueeze", []int64{2, 3}, []Tensor{constant("a", 0, -1)}, nil, []int64{1, 2, 3, 1}},
		{"gather", "Gather", []int64{30, 8}, []Tensor{constant("i", 1, 2, 3)}, nil, []int64{3, 8}},
		{"reduce", "ReduceMean", []int64{2, 3, 4}, []Tensor{constant("a", -1)}, []Attr{num("keepdims", 0)}, []int64{2, 3}},
		{"reduce all", "ReduceSum", []int64{2, 3}, nil, []Attr{num("keepdims", 0)}, []int64{}},
		{"expand", "Expand", []int64{2, 1}, []Tensor{constant("s", 2, 7)}, nil, []int64{2, 7}},
		{"tile", "Tile", []int64{2, 3}, []Tensor{constant("r", 1, 4)}, nil, []int64{2, 12}},
		{"pad", "Pad", []int64{2, 3}, []Tensor{constant("p", 0, 1, 0, 2)}, nil, []int64{2, 6}},
		{"resize", "Resize", []int64{1, 3, 4, 4}, []Tensor{weight("roi"), {Name: "sc", Type: Float, Dims: []int64{4}, Floats: []float32{1, 1, 2, 2}}}, nil, []int64{1, 3, 8, 8}},
		{"top k", "TopK", []int64{2, 9}, []Tensor{constant("k", 5)}, nil, []int64{2, 5}},
		{"one hot", "OneHot", []int64{2, 3}, []Tensor{constant("d", 10), weight("v", 2)}, nil, []int64{2, 3, 10}},
		{"depth to space", "DepthToSpace", []int64{1, 8, 2, 2}, nil, []Attr{num("blocksize", 2)}, []int64{1, 2, 4, 4}},
		{"lstm", "LSTM", []int64{35, 2, 10}, []Tensor{weight("w", 1, 80, 10), weight("r", 1, 80, 20)}, []Attr{num("hidden_size", 20)}, []int64{35, 1, 2, 20}},
		{"einsum", "Einsum", []int64{2, 3, 4}, []Tensor{weight("w", 4, 5)}, []Attr{{Name: "equation", S: "bij,jk->bik"}}, []int64{2, 3, 5}},
		{"an operator nobody knows", "Frobnicate", []int64{2, 3}, nil, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dims := make([]Dim, len(tc.x))
			for i, d := range tc.x {
				dims[i].Value = d
			}
			n := Node{Op: tc.op, Inputs: []string{"x"}, Outputs: []string{"y"}, Attrs: tc.attrs}
			for _, w := range tc.more {
				n.Inputs = append(n.Inputs, w.Name)
			}
			g := &Graph{Nodes: []Node{n}, Initializers: tc.more, Inputs: []Value{{Name: "x", Type: Float, Dims: dims, Known: true}}}
			p, err := newPlan(g, Options{Batch: max(1, tc.x[0])})
			if err != nil {
				t.Fatal(err)
			}
			if understood := len(p.unknown) == 0; understood != (tc.want != nil) {
				t.Fatalf("understood: %v, unknown %v", understood, p.unknown)
			}
			if tc.want == nil {
				return
			}
			got := p.tensors[p.names["y"]].dims
			if d := cmp.Diff(tc.want, append([]int64{}, got...)); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// TestShapeArithmetic follows the pattern that exporters write for
// x.view(x.size(0), -1): Shape, Gather, Unsqueeze, Concat, Reshape.
func TestShapeArithmetic(t *testing.T) {
	t.Parallel()
	g := &Graph{
		Inputs:       []Value{{Name: "x", Type: Float, Known: true, Dims: []Dim{{Value: -1, Param: "batch"}, {Value: 3}, {Value: 4}}}},
		Initializers: []Tensor{{Name: "zero", Type: Int64, Ints: []int64{0}}, constant("axis", 0), constant("rest", -1)},
		Nodes: []Node{
			{Op: "Shape", Inputs: []string{"x"}, Outputs: []string{"s"}},
			{Op: "Gather", Inputs: []string{"s", "zero"}, Outputs: []string{"n"}},
			{Op: "Unsqueeze", Inputs: []string{"n", "axis"}, Outputs: []string{"n1"}},
			{Op: "Concat", Inputs: []string{"n1", "rest"}, Outputs: []string{"to"}, Attrs: []Attr{num("axis", 0)}},
			{Op: "Reshape", Inputs: []string{"x", "to"}, Outputs: []string{"y"}},
		},
		Outputs: []Value{{Name: "y"}},
	}
	p, err := newPlan(g, Options{Batch: 5})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int64{5, 12}, p.tensors[p.names["y"]].dims); d != "" || len(p.unknown) > 0 {
		t.Fatalf("%s unknown %v", d, p.unknown)
	}
}

func TestUnknownOperatorsMakeItPartial(t *testing.T) {
	t.Parallel()
	g := &Graph{
		Inputs: []Value{{Name: "x", Type: Float, Known: true, Dims: []Dim{{Param: "N", Value: -1}, {Value: 8}}}},
		Nodes: []Node{
			{Op: "Frob", Inputs: []string{"x"}, Outputs: []string{"a"}},
			{Op: "Frob", Inputs: []string{"a"}, Outputs: []string{"b"}},
			{Op: "Conv", Domain: "my.domain", Inputs: []string{"b"}, Outputs: []string{"c"}},
			{Op: "Relu", Inputs: []string{"c"}, Outputs: []string{"y"}},
		},
	}
	s, err := Summarize(g, Options{Batch: 4, Training: true})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"Frob", "Conv"}, s.Unknown); d != "" || !s.Partial || s.Activations != 1 {
		t.Fatalf("%+v\n%s", s, d)
	}
}

func TestFixedBatchIsScaled(t *testing.T) {
	t.Parallel()
	g := &Graph{
		Inputs:       []Value{{Name: "x", Type: Float, Known: true, Dims: []Dim{{Value: 1}, {Value: 8}}}},
		Initializers: []Tensor{weight("w", 4, 8)},
		Nodes:        []Node{{Op: "Gemm", Inputs: []string{"x", "w"}, Outputs: []string{"y"}, Attrs: []Attr{num("transB", 1)}}},
		Outputs:      []Value{{Name: "y"}},
	}
	s, err := Summarize(g, Options{Batch: 10, Training: true})
	if err != nil {
		t.Fatal(err)
	}
	want := Summary{
		Params: 32, ParamBytes: 128, FLOPs: 640, MovedBytes: 128 + 320 + 160, ActBytes: 160, MatrixBytes: 160, SavedBytes: 320, InputBytes: 320, OutputBytes: 160,
		LiveBytes: 480, LargestBytes: 320, Linears: 1,
		Unknown: nil,
	}
	s.Unknown = nil
	if d := cmp.Diff(want, s); d != "" {
		t.Fatal(d)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Batch: MaxBatch + 1}, {Batch: 1, SeqLen: -1}, {Batch: 1, Precision: "fp3"}, {Batch: 1, Optimizer: "lion"}} {
		if _, err := Summarize(&Graph{}, o); err == nil {
			t.Errorf("%+v: no error from Summarize", o)
		}
		if _, err := Trace(&Graph{}, o); err == nil {
			t.Errorf("%+v: no error from Trace", o)
		}
	}
}

// TestRulesSurviveAnything gives every operator inputs, outputs and attributes
// of the wrong number, rank and size.
func TestRulesSurviveAnything(t *testing.T) {
	t.Parallel()
	ops := slices.Sorted(maps.Keys(rules()))
	names := []string{"kernel_shape", "strides", "pads", "dilations", "axes", "perm", "split", "axis", "group", "blocksize", "keepdims",
		"hidden_size", "q_num_heads", "kv_num_heads", "batch_dims", "ceil_mode", "layout", "to", "start", "end", "value_ints", "num_outputs"}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int64{math.MinInt64, -2, -1, 0, 1, 2, 3, 7, 8, MaxDim, math.MaxInt64})
		dim := rapid.SampledFrom([]int64{0, 1, 2, 3, 7, 8, MaxDim})
		g := &Graph{}
		in := []string{"", "nowhere"}
		for i := range 4 {
			name := string(rune('a' + i))
			w := Tensor{Name: name, Type: rapid.SampledFrom([]DType{Float, Int64}).Draw(t, "type"), Dims: rapid.SliceOfN(dim, 0, 5).Draw(t, "dims")}
			if rapid.Bool().Draw(t, "constant") {
				w = constant(name, rapid.SliceOfN(size, 0, 5).Draw(t, "value")...)
			}
			g.Initializers = append(g.Initializers, w)
			v := Value{Name: name + "x", Type: Float, Known: true}
			for _, d := range rapid.SliceOfN(dim, 0, 5).Draw(t, "input") {
				v.Dims = append(v.Dims, Dim{Value: d})
			}
			g.Inputs = append(g.Inputs, v)
			in = append(in, name, v.Name)
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			n := Node{Op: rapid.SampledFrom(ops).Draw(t, "op"), Inputs: rapid.SliceOfN(rapid.SampledFrom(in), 0, 5).Draw(t, "in")}
			for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 4).Draw(t, "attrs") {
				n.Attrs = append(n.Attrs, Attr{Name: name, I: size.Draw(t, "i"), Ints: rapid.SliceOfN(size, 0, 5).Draw(t, "ints")})
			}
			for j := range rapid.IntRange(0, 3).Draw(t, "out") {
				name := fmt.Sprint("r", i, j)
				n.Outputs, in = append(n.Outputs, name), append(in, name)
			}
			g.Nodes = append(g.Nodes, n)
		}
		opt := Options{Batch: rapid.Int64Range(1, 64).Draw(t, "batch"), Training: true, Precision: AMP, Optimizer: Adam}
		s, err := Summarize(g, opt)
		if err != nil || s.SavedBytes < 0 || s.FLOPs < 0 || s.LiveBytes < 0 || s.MovedBytes < 0 || s.WorkspaceBytes < 0 {
			t.Fatalf("%+v, %v", s, err)
		}
		ev, err := Trace(g, opt)
		if err != nil || Peak(ev) < 0 {
			t.Fatalf("peak %d, %v", Peak(ev), err)
		}
	})
}

func TestSaturation(t *testing.T) {
	t.Parallel()
	huge := []int64{MaxDim, MaxDim, MaxDim}
	if got := product(huge); got != math.MaxInt64 {
		t.Errorf("product %d", got)
	}
	if got := satAdd(math.MaxInt64, 1); got != math.MaxInt64 {
		t.Errorf("sum %d", got)
	}
	if got := scale(math.MaxInt64, 3, 2); got != math.MaxInt64 {
		t.Errorf("scaled %d", got)
	}
	if got := scale(10, 3, 4); got != 7 {
		t.Errorf("10 x 3/4 = %d", got)
	}
}
