package graph

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func bytesField(dst []byte, num protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), b)
}

func intField(dst []byte, num protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), uint64(v))
}

// model wraps the fields of a GraphProto into a ModelProto.
func model(graph []byte) []byte { return bytesField(nil, 7, graph) }

func tensorProto(name string, dims ...int64) []byte {
	var t []byte
	for _, d := range dims {
		t = intField(t, 1, d)
	}
	return bytesField(intField(t, 2, int64(Float)), 8, []byte(name))
}

// nested is a graph inside an attribute inside a node, depth times.
func nested(depth int) []byte {
	g := []byte{}
	for range depth {
		attr := bytesField(bytesField(nil, 1, []byte("body")), 6, g)
		g = bytesField(nil, 1, bytesField(bytesField(nil, 4, []byte("Loop")), 5, attr))
	}
	return g
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	good := model(bytesField(nil, 5, tensorProto("w", 3, 4)))
	manyNodes := bytes.Repeat(bytesField(nil, 1, nil), MaxNodes+1)
	long := bytesField(nil, 2, bytes.Repeat([]byte("x"), MaxKeptBytes+1))
	for _, tc := range []struct {
		name, text string
		b          []byte
		want       error
	}{
		{"empty", "no graph", nil, ErrMalformed},
		{"text", "", []byte("import torch\n"), ErrMalformed},
		{"cut in a field", "", good[:len(good)-3], ErrMalformed},
		{"a length beyond the file", "", append([]byte{0x3a}, 0xff, 0xff, 0xff, 0xff, 0x7f), ErrMalformed},
		{"an endless number", "bad number", bytes.Repeat([]byte{0xff}, 20), ErrMalformed},
		{"field number 0", "field number", []byte{0x00, 0x00}, ErrMalformed},
		{"a group", "does not use", []byte{0x0b}, ErrMalformed},
		{"a negative dimension", "dimension of -1", model(bytesField(nil, 5, tensorProto("w", -1))), ErrLimit},
		{"a huge dimension", "dimension of", model(bytesField(nil, 5, tensorProto("w", MaxDim+1))), ErrLimit},
		{"a huge rank", "more than 16 dimensions", model(bytesField(nil, 5, tensorProto("w", make([]int64, 17)...))), ErrLimit},
		{"many nodes", "more than 50000 operators", model(manyNodes), ErrLimit},
		{"a long name", "4 MiB", model(long), ErrLimit},
		{"deep nesting", "64 deep", model(nested(MaxDepth)), ErrLimit},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, r := range []io.Reader{bytes.NewReader(tc.b), bufio.NewReader(bytes.NewReader(tc.b))} {
				if _, err := Read(r); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
					t.Fatalf("error %v, want %v with %q", err, tc.want, tc.text)
				}
			}
		})
	}
	if _, err := Read(bytes.NewReader(model(nested(MaxDepth - 1)))); err != nil {
		t.Fatalf("the deepest allowed nesting: %v", err)
	}
}

// zeros yields head, then n zero bytes, then tail, without holding them.
func zeros(head []byte, n int64, tail []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(head), io.LimitReader(zeroReader{}, n), bytes.NewReader(tail))
}

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestWeightsAreNotHeld reads a model with 512 MiB of weights in it.
func TestWeightsAreNotHeld(t *testing.T) {
	const size = 512 << 20
	weights := protowire.AppendVarint(protowire.AppendTag(tensorProto("w", size/4), 9, protowire.BytesType), size)
	graph := protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.BytesType), uint64(len(weights)+size))
	graph = append(graph, weights...)
	tail := bytesField(nil, 2, []byte("after the weights"))
	head := protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.BytesType), uint64(len(graph)+size+len(tail)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	g, err := Read(zeros(append(head, graph...), size, tail))
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if g.Name != "after the weights" || len(g.Initializers) != 1 || g.Initializers[0].Elems() != size/4 {
		t.Fatalf("read %+v", g)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Fatalf("%d bytes allocated for a description of %d", used, len(head)+len(graph)+len(tail))
	}
}

func zooFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../zoo/onnx/*.onnx")
	if err != nil || len(files) == 0 {
		t.Fatalf("zoo files: %v, %v", files, err)
	}
	return files
}

// FuzzRead feeds the reader, and all that follows it, with hostile files.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"lstm-lm", "squeezenet1_1", "alexnet", "deit_tiny"} {
		b, err := os.ReadFile("../zoo/onnx/" + name + ".onnx")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, int64(2))
	}
	f.Add(model(nested(3)), int64(1))
	f.Add(model(bytesField(nil, 1, bytesField(nil, 4, []byte("LayerNormalization")))), int64(1)) // without outputs
	f.Add(model(bytesField(nil, 5, tensorProto("w", 3, 4))), int64(1))
	f.Fuzz(func(t *testing.T, b []byte, batch int64) {
		g, err := Read(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrLimit) {
				t.Fatalf("error %v is of neither class", err)
			}
			return
		}
		opt := Options{Batch: 1 + batch&7, SeqLen: 16, Training: true, Precision: AMP, Optimizer: Adam}
		s, err := Summarize(g, opt)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []int64{s.Params, s.ParamBytes, s.FLOPs, s.MovedBytes, s.SavedBytes, s.LiveBytes, s.LargestBytes, s.WorkspaceBytes} {
			if v < 0 {
				t.Fatalf("a negative figure: %+v", s)
			}
		}
		ev, err := Trace(g, opt)
		if err != nil {
			t.Fatal(err)
		}
		if Peak(ev) < 0 {
			t.Fatal("a negative peak")
		}
	})
}

func BenchmarkRead(b *testing.B) {
	data, err := os.ReadFile("../zoo/onnx/resnet50.onnx")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSummarize(b *testing.B) {
	data, err := os.ReadFile("../zoo/onnx/resnet50.onnx")
	if err != nil {
		b.Fatal(err)
	}
	g, err := Read(bytes.NewReader(data))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Summarize(g, Options{Batch: 32, Training: true}); err != nil {
			b.Fatal(err)
		}
	}
}
