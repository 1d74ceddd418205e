package zoo

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-scheduler/berth/model/graph"
)

func TestCommittedFilesAreCurrent(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("onnx/*.onnx")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(Models()) {
		t.Errorf("%d files in onnx/, %d models in the zoo", len(files), len(Models()))
	}
	for _, m := range Models() {
		got, err := os.ReadFile(filepath.Join("onnx", m.Name+".onnx"))
		if err != nil {
			t.Errorf("%v; run go run ./model/zoo/cmd/zoogen", err)
			continue
		}
		if !bytes.Equal(got, m.ONNX()) {
			t.Errorf("%s: the file differs from what the generator makes; run go run ./model/zoo/cmd/zoogen", m.Name)
		}
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	for _, m := range Models() {
		t.Run(m.Name, func(t *testing.T) {
			g, err := graph.Read(bytes.NewReader(m.ONNX()))
			if err != nil {
				t.Fatal(err)
			}
			one, err := graph.Summarize(g, graph.Options{Batch: 1, Training: true})
			if err != nil {
				t.Fatal(err)
			}
			two, err := graph.Summarize(g, graph.Options{Batch: 2, Training: true})
			if err != nil {
				t.Fatal(err)
			}
			if one.Partial {
				t.Errorf("not fully understood: %+v", one)
			}
			if m.Params > 0 && math.Abs(float64(one.Params)/float64(m.Params)-1) > 0.02 {
				t.Errorf("%d parameters, published are %d", one.Params, m.Params)
			}
			if two.FLOPs != 2*one.FLOPs || two.SavedBytes <= one.SavedBytes || two.Params != one.Params {
				t.Errorf("twice the batch does not cost twice:\n%+v\n%+v", one, two)
			}
			if len(m.ONNX()) > 100<<10 {
				t.Errorf("file of %d bytes", len(m.ONNX()))
			}
			t.Logf("%.2f M params, %.2f GFLOPs, %.1f MiB saved, %d bytes",
				float64(one.Params)/1e6, float64(one.FLOPs)/1e9, float64(one.SavedBytes)/(1<<20), len(m.ONNX()))
		})
	}
}
