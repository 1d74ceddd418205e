package eval

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// FuzzReaders gives any table to each reader: none may panic, and the rows they
// make hold features that a job may have.
func FuzzReaders(f *testing.F) {
	files, err := filepath.Glob(fixtures + "/*/*.csv")
	if err != nil || len(files) == 0 {
		f.Fatal("no fixtures", err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(raw))
	}
	f.Add("model,gpu,batch_size,peak_mem_mib,activations_mb\nx,T4,1e300,1e300,-1\n")
	f.Add("layers,arch,batch,input_size,peak,n_conv2d\n\"[('conv2d', 9, 9)]\",residual,1,3,1,1\n")
	f.Fuzz(func(t *testing.T, text string) {
		tab, err := parseTable("x", strings.NewReader(text))
		if err != nil {
			return
		}
		for name, r := range readers() {
			b := &builder{note: func(string) {}, sets: map[setKey]*Set{}, tables: map[string]*layerTable{}}
			if r.table(b, tab) != nil {
				continue
			}
			for _, s := range b.finish() {
				for i := range s.Rows {
					if err := s.Rows[i].Sample.Features.Check(); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
			}
		}
	})
}

func FuzzLayers(f *testing.F) {
	f.Add("[('conv2d', 256, 112), ('ReLU', 256, 0), ('linear', 5, 25)]", uint8(0), int64(8), int64(3))
	f.Add(`[("dropout",1,2)]`, uint8(1), int64(1<<20), int64(1<<20))
	f.Add("[]", uint8(2), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, text string, sh uint8, side, chans int64) {
		ls, err := parseLayers(text)
		if err != nil {
			return
		}
		side, chans = min(max(side, 0), 1<<12), min(max(chans, 0), 1<<12)
		w := walkLayers(ls, shape(sh%3), chans*side*side, side, chans)
		if w.saved < 0 || w.masks < 0 || w.acts < 0 || w.moved < 0 || w.params < 0 || !(w.flops >= 0) {
			t.Fatalf("negative: %+v", w)
		}
	})
}

func FuzzLayerTable(f *testing.F) {
	files, err := filepath.Glob(fixtures + "/carma/*.model")
	if err != nil || len(files) == 0 {
		f.Fatal("no fixtures", err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(raw))
	}
	f.Add("DataParallel(\n  (module): GPT2LMHeadModel(\n (wte): Embedding(100, 64), 6,400 params\n (0): GPT2Block(\n")
	f.Fuzz(func(t *testing.T, text string) {
		lt, err := parseLayerTable(strings.NewReader(text))
		if err != nil {
			return
		}
		run := model.Run{Mode: model.Training, Batch: 4, SeqLen: 16, Precision: graph.FP32, Optimizer: graph.AdamW}
		got, ok := lt.features(run)
		if !ok {
			got, ok = lt.transformer.features(run)
		}
		for _, v := range []int64{got.SavedBytes, got.ActBytes, got.FLOPs, got.InputBytes, got.MovedBytes} {
			if ok && v < 0 {
				t.Fatalf("negative: %+v", got)
			}
		}
	})
}
