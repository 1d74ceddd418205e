package model

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/model/graph"
)

func TestFeaturesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawFeatures(t)
		f.Declared.Seconds = rapid.Float64Range(0, 1e10).Draw(t, "seconds")
		b := f.Encode()
		if len(b) > MaxFeatureBytes {
			t.Fatalf("%d bytes", len(b))
		}
		got, err := DecodeFeatures(b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(f, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestDecodeFeaturesRefuses(t *testing.T) {
	t.Parallel()
	f := features(t, "gpt2", training64)
	good := f.Encode()
	change := func(fn func(b []byte) []byte) []byte { return fn(bytes.Clone(good)) }
	nan := f
	nan.Declared.Seconds = math.NaN()
	for _, tc := range []struct {
		name, want string
		b          []byte
	}{
		{"empty", "too few", nil},
		{"too long", "at most 4096", make([]byte, MaxFeatureBytes+1)},
		{"another version", "version 9", change(func(b []byte) []byte { b[0] = 9; return b })},
		{"a bad mode", "mode 7", change(func(b []byte) []byte { b[1] = 7; return b })},
		{"a flag of 2", "canonical", change(func(b []byte) []byte { b[2] = 2; return b })},
		{"cut short", "cut short", good[:20]},
		{"one byte more", "9 bytes where 8", append(bytes.Clone(good), 0)},
		{"NaN", "declared seconds", nan.Encode()},
		{"an unknown precision", "precision", change(func(b []byte) []byte { return bytes.Replace(b, []byte("fp32"), []byte("fp99"), 1) })},
		{"an unknown source", "source", change(func(b []byte) []byte { return bytes.Replace(b, []byte("catalogue"), []byte("catalogus"), 1) })},
		{"text not UTF-8", "UTF-8", change(func(b []byte) []byte { return bytes.Replace(b, []byte("gpt2"), []byte("gp\xff2"), 1) })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := DecodeFeatures(tc.b)
			if !errors.Is(err, ErrFeatures) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func FuzzDecodeFeatures(f *testing.F) {
	for _, name := range []string{"resnet50", "gpt2"} {
		x := features(f, name, training64)
		f.Add(x.Encode())
	}
	f.Add([]byte{1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := DecodeFeatures(b)
		if err != nil {
			return
		}
		if err := x.Check(); err != nil {
			t.Fatalf("decoded features are out of range: %v", err)
		}
		if !bytes.Equal(x.Encode(), b) {
			t.Fatal("encoding is not unique")
		}
	})
}

func TestSignature(t *testing.T) {
	t.Parallel()
	f := features(t, "resnet50", training64)
	same := f
	same.Steps, same.Declared = 7, Declared{GPUMemMiB: 99}
	other := f
	other.Batch = 32
	a := f.Signature("alice")
	if len(a) != 32 || a != same.Signature("alice") {
		t.Errorf("signature %q, with other steps and declarations %q; must be equal and 32 digits", a, same.Signature("alice"))
	}
	if a == other.Signature("alice") || a == f.Signature("bob") {
		t.Error("another batch or user must give another signature")
	}
}

func TestCatalogueAgreesWithGraphs(t *testing.T) {
	t.Parallel()
	for _, name := range Catalogue() {
		for _, run := range []Run{
			{Mode: Training, Batch: 32, Precision: graph.FP32, Optimizer: graph.SGD},
			{Mode: Inference, Batch: 8, Precision: graph.FP16},
		} {
			t.Run(fmt.Sprint(name, run.Batch), func(t *testing.T) {
				want := fromZoo(t, name, run)
				got := features(t, name, run)
				for _, v := range []struct {
					name      string
					got, want int64
				}{
					{"parameters", got.Params, want.Params}, {"parameter bytes", got.ParamBytes, want.ParamBytes},
					{"saved", got.SavedBytes, want.SavedBytes}, {"live", got.LiveBytes, want.LiveBytes},
					{"largest", got.LargestBytes, want.LargestBytes}, {"FLOPs", got.FLOPs, want.FLOPs}, {"output", got.OutputBytes, want.OutputBytes},
					{"activations", got.ActBytes, want.ActBytes}, {"matrix activations", got.MatrixBytes, want.MatrixBytes},
					{"convolutions", got.Convs, want.Convs}, {"linears", got.Linears, want.Linears},
				} {
					if math.Abs(float64(v.got-v.want)) > 0.05*float64(v.want)+1024 {
						t.Errorf("%s: %d in the catalogue, %d in the graph", v.name, v.got, v.want)
					}
				}
			})
		}
	}
}

func readZoo(t testing.TB, name string) *graph.Graph {
	t.Helper()
	file, err := os.Open("zoo/onnx/" + name + ".onnx")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	g, err := graph.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func fromZoo(t testing.TB, name string, run Run) Features {
	t.Helper()
	f, err := FromGraph(readZoo(t, name), name, run)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCatalogueNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ResNet50", "resnet-50", "BERT_base_uncased", "vit-b-16"} {
		if _, err := FromCatalogue(name, training64); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, near := range map[string]string{"resnet51": "resnet50", "bert-base": "bert-base-uncased", "resnt18": "resnet18", "": "gpt2"} {
		if _, err := FromCatalogue(name, training64); err == nil || !strings.Contains(err.Error(), near) {
			t.Errorf("%s: error %v, want one that names %s", name, err, near)
		}
	}
	if _, err := FromCatalogue("resnet50", Run{}); err == nil || !strings.Contains(err.Error(), "batch 0") {
		t.Errorf("batch 0: error %v", err)
	}
}

func TestLongerSequencesCostMore(t *testing.T) {
	t.Parallel()
	at := func(seq int64) int64 {
		run := training64
		run.SeqLen = seq
		f := features(t, "bert-base-uncased", run)
		return f.SavedBytes
	}
	if !(at(64) < at(0) && at(0) == at(128) && at(256) > 2*at(128)) {
		t.Errorf("saved bytes %d at 64, %d at 128, %d at 256 tokens", at(64), at(128), at(256))
	}
}
