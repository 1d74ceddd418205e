package eval

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// dataDir names real data sets: go test -data DIR ./model/eval.
var dataDir = flag.String("data", "", "directory of measured data sets, for the tests that need them")

const fixtures = "testdata/data"

func load(t *testing.T, dir string) ([]Set, []string) {
	t.Helper()
	var notes []string
	ld := Loader{Note: func(s string) { notes = append(notes, s) }}
	sets, err := ld.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return sets, notes
}

func find(t *testing.T, sets []Set, dataset string, target Target) *Set {
	t.Helper()
	for i := range sets {
		if sets[i].Dataset == dataset && sets[i].Target == target {
			return &sets[i]
		}
	}
	t.Fatalf("no set %s, %s", dataset, target)
	return nil
}

// TestLoadCounts holds what becomes of each line of the fixtures.
func TestLoadCounts(t *testing.T) {
	sets, notes := load(t, fixtures)
	var got []string
	for i := range sets {
		s := &sets[i]
		got = append(got, fmt.Sprintf("%s %s: %d rows, %d censored; %s", s.Dataset, s.Target, len(s.Rows), s.Censored(), s.SkippedText()))
	}
	want := []string{
		"carma memory: 3 rows, 0 censored; 1 without a layer table",
		"carma time: 1 rows, 0 censored; ",
		"gpumemnet_cnn memory: 3 rows, 1 censored; 1 without layers that can be read",
		"gpumemnet_cnn util: 1 rows, 0 censored; 1 not sampled, 1 out of memory, 1 without layers that can be read",
		"gpumemnet_mlp memory: 1 rows, 0 censored; ",
		"gpumemnet_mlp util: 1 rows, 0 censored; ",
		"lambda_bench util: 1 rows, 0 censored; 1 ended by a lack of memory, 1 not measured, 1 of a model that is not in the catalogue, 1 on several GPUs",
		"lambda_bench time: 2 rows, 0 censored; 1 ended by a lack of memory, 1 of a model that is not in the catalogue, 1 on several GPUs",
		"litgpt memory: 6 rows, 2 censored; 2 on several GPUs, 1 of a model that is not in the catalogue, 1 without a model",
		"neusight time: 2 rows, 0 censored; 1 on several GPUs",
		"profile_mycard memory: 3 rows, 1 censored; 1 of pairs, 1 that failed, 1 without a GPU",
		"profile_mycard util: 2 rows, 0 censored; 1 of pairs, 1 that failed, 1 without a GPU",
		"profile_mycard time: 2 rows, 0 censored; 1 of pairs, 1 that failed, 1 without a GPU",
		"schedtune memory: 6 rows, 1 censored; ",
		"sia time: 2 rows, 0 censored; 1 of a model that is not in the catalogue, 1 on several GPUs",
		"timm_mem_a100 memory: 3 rows, 0 censored; 1 of status drop, 1 with doubtful model facts",
		"timm_mem_a100 memory_summary: 3 rows, 0 censored; 1 of status drop, 1 with doubtful model facts",
		"timm_speed time: 3 rows, 0 censored; ",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("sets (-want +got):\n%s", d)
	}
	wantNotes := []string{
		"gpumemnet/odd.csv: not read: it has no column arch",
		"neusight/devices.csv: not read: it has no column model",
		"something_else: no data set that can be scored is known by this name",
	}
	if d := cmp.Diff(wantNotes, notes); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

// TestLoadFeatures compares one row of each layout with what follows from it by
// hand.
func TestLoadFeatures(t *testing.T) {
	sets, _ := load(t, fixtures)
	train := func(batch int64, opt model.Optimizer) model.Run {
		return model.Run{Mode: model.Training, Batch: batch, Precision: graph.FP32, Optimizer: opt, Framework: "pytorch"}
	}
	for _, tc := range []struct {
		dataset string
		target  Target
		row     int
		want    model.Sample
	}{
		{"schedtune", Memory, 1, model.Sample{GPUType: "K80", PeakMiB: 1100, Features: model.Features{
			Source: model.SourceGraph, Model: "alnet10", Run: train(16, graph.SGD), Params: 10 << 20, ParamBytes: 40 << 20, ActBytes: 200 << 20, InputBytes: 9 << 20,
		}}},
		{"schedtune", Memory, 5, model.Sample{GPUType: "K80", PeakMiB: 11441, Censored: true, Features: model.Features{
			Source: model.SourceGraph, Model: "blnet7", Run: train(4096, graph.SGD), Params: 5 << 20, ParamBytes: 20 << 20, ActBytes: 90000 << 20, InputBytes: 2304 << 20,
		}}},
		{"timm_mem_a100", MemorySummary, 1, model.Sample{GPUType: "A100-SXM4-40GB", PeakMiB: 3400, Features: model.Features{
			Source: model.SourceCatalogue, Model: "foonet_a", Run: train(16, graph.SGD), Params: 10e6, ParamBytes: 40e6,
			FLOPs: 2 * 2e9 * 16, MatrixBytes: 5e6 * 4 * 16, InputBytes: 3 * 224 * 224 * 4 * 16,
		}}},
		{"timm_mem_a100", Memory, 1, model.Sample{GPUType: "A100-SXM4-40GB", PeakMiB: 3400, Features: model.Features{
			Source: model.SourceGraph, Model: "foonet_a", Run: train(16, graph.SGD), Params: 10e6, ParamBytes: 40e6, SavedBytes: 800 << 20, TracedBytes: 900 << 20,
			FLOPs: 2 * 2e9 * 16, MatrixBytes: 5e6 * 4 * 16, InputBytes: 3 * 224 * 224 * 4 * 16,
		}}},
		{"timm_speed", Time, 0, model.Sample{GPUType: "RTX-3090", Seconds: 0.02, Steps: 1, Features: model.Features{
			Source: model.SourceCatalogue, Model: "foonet_a.first", Run: model.Run{Batch: 64, Precision: graph.AMP, Framework: "pytorch"},
			Params: 10e6, ParamBytes: 40e6, FLOPs: 2 * 2e9 * 64, MatrixBytes: 5e6 * 2 * 64, InputBytes: 3 * 224 * 224 * 4 * 64,
		}}},
		{"gpumemnet_mlp", Util, 0, model.Sample{GPUType: "A100-SXM4-40GB", PeakMiB: 1450, UtilMilli: 220, Features: model.Features{
			Source: model.SourceGraph, Model: "pyramid-5f9fd8210c5666e7", Run: train(100, graph.Adam), Params: 38, ParamBytes: 152,
			// The input and the ReLU's output are kept, each once.
			SavedBytes: (6 + 4) * 400, ActBytes: (4 + 4 + 2) * 400, MatrixBytes: (4 + 2) * 400, LargestBytes: 4 * 400, LiveBytes: (6 + 4) * 400,
			InputBytes: 6 * 400, OutputBytes: 2 * 400, MovedBytes: (6 + 4 + 28 + 4 + 4 + 4 + 2 + 10) * 400, FLOPs: 2 * 38 * 100, Linears: 2, Activations: 1,
		}}},
		{"gpumemnet_cnn", Memory, 2, model.Sample{GPUType: "A100-SXM4-40GB", PeakMiB: 40960, Censored: true}},
		{"carma", Time, 0, model.Sample{GPUType: "A100-SXM4-40GB", PeakMiB: 3072, Seconds: 600, Steps: 600, Features: model.Features{
			Source: model.SourceGraph, Model: "tinycnn_64", Run: train(64, graph.Adam), Params: 311, ParamBytes: 1244,
			// Kept are the outputs of convolution, ReLU and pooling, and the
			// indices of the maxima.
			SavedBytes: 64 * (4*(256+256+64) + 8*64), ActBytes: 256 * (256*3 + 64 + 3), MatrixBytes: 256 * (256 + 3), LargestBytes: 256 * 256, LiveBytes: 256 * 512,
			InputBytes: 0, OutputBytes: 256 * 3, MovedBytes: 256 * (256 + 108 + 512 + 8 + 512 + 256 + 64 + 64 + 3 + 195), FLOPs: 64 * (2*108*64 + 2*195),
			Convs: 1, Linears: 1, Activations: 1, Norms: 1, Others: 1,
		}}},
		{"carma", Memory, 1, model.Sample{GPUType: "A100-SXM4-40GB", PeakMiB: 2048, Features: model.Features{
			Source: model.SourceGraph, Model: "tinytree", Run: train(16, graph.Adam), Params: 67, ParamBytes: 268,
			SavedBytes: 4e6, ActBytes: 6e6, MatrixBytes: 4e6, InputBytes: 4e6, FLOPs: 5e6, Partial: true,
		}}},
	} {
		t.Run(fmt.Sprintf("%s-%s-%d", tc.dataset, tc.target, tc.row), func(t *testing.T) {
			got := find(t, sets, tc.dataset, tc.target).Rows[tc.row].Sample
			if tc.want.Features.Source == "" {
				got.Features = model.Features{}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("sample (-want +got):\n%s", d)
			}
		})
	}
}

// TestLoadNetworks checks the layer list of a convolutional network by hand.
func TestLoadNetworks(t *testing.T) {
	sets, _ := load(t, fixtures)
	rows := find(t, sets, "gpumemnet_cnn", Memory).Rows
	f := rows[0].Sample.Features
	// Kept are the input, the ReLU's output, a mask of a byte an element, the
	// linear layer's input and the softmax's output.
	if want := int64(10 * (4*(192+256+4+5) + 256)); f.SavedBytes != want {
		t.Errorf("saved %d bytes, want %d", f.SavedBytes, want)
	}
	if want := int64(10 * (2*112*64 + 2*25)); f.FLOPs != want {
		t.Errorf("%d FLOPs, want %d", f.FLOPs, want)
	}
	// GELU keeps its input instead of its output.
	if got, want := rows[1].Sample.Features.SavedBytes, int64(20*4*(192+256+4+5)); got != want {
		t.Errorf("with GELU: saved %d bytes, want %d", got, want)
	}
}

func TestLoadLanguageModels(t *testing.T) {
	sets, _ := load(t, fixtures)
	rows := find(t, sets, "litgpt", Memory).Rows
	var got []string
	for i := range rows {
		r := &rows[i]
		f := &r.Sample.Features
		got = append(got, fmt.Sprintf("%s %s batch %d seq %d rank %d bits %d mode %d trained %d: %.0f MiB censored %t",
			r.Model, r.GPU, f.Batch, f.SeqLen, f.LoRARank, f.WeightBits, f.Mode, f.TrainedBytes, r.actual(Memory), r.Sample.Censored))
	}
	want := []string{ // 22 GB are 20,981 MiB; a censored label is the card's, less the context
		"llama-2-7b A100-SXM4-40GB batch 1 seq 1304 rank 8 bits 0 mode 1 trained 8388608: 20981 MiB censored false",
		"llama-2-7b A100-SXM4-40GB batch 1 seq 1304 rank 0 bits 4 mode 1 trained 2459520: 11444 MiB censored false",
		"llama-2-7b A100-SXM4-40GB batch 9 seq 1304 rank 8 bits 0 mode 1 trained 8388608: 40540 MiB censored true",
		"llama-2-7b A100-SXM4-40GB batch 1 seq 64 rank 0 bits 0 mode 0 trained 0: 13351 MiB censored false",
		"falcon-7b A10G batch 1 seq 512 rank 32 bits 4 mode 1 trained 0: 9060 MiB censored false",
		"falcon-7b A10G batch 1 seq 512 rank 32 bits 0 mode 1 trained 0: 22608 MiB censored true",
	}
	for i := range got {
		if strings.HasPrefix(want[i], "falcon") { // trained bytes are computed there
			got[i] = trainedZero(got[i])
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
	for _, r := range rows {
		if r.Label != Allocator || r.OffsetMiB == 0 {
			t.Errorf("%s: label %s, offset %d", r.Model, r.Label, r.OffsetMiB)
		}
	}
	bert := find(t, sets, "carma", Memory).Rows[2].Sample.Features
	if bert.Width != 128 || bert.Blocks != 2 || bert.SeqLen != 512 || bert.Batch != 16 || bert.SavedBytes == 0 {
		t.Errorf("BERT out of its modules: %+v", bert)
	}
	small := find(t, sets, "neusight", Time).Rows
	if f := small[0].Sample.Features; f.Width != 256 || f.Blocks != 4 || f.Mode != model.Training || small[0].GPU != "MI210" {
		t.Errorf("BERT of NeuSight: %s %+v", small[0].GPU, f)
	}
}

func trainedZero(s string) string {
	head, rest, _ := strings.Cut(s, "trained ")
	_, tail, _ := strings.Cut(rest, ":")
	return head + "trained 0:" + tail
}

func TestLoadTakesWhatItFinds(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "SchedTune")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	fmt.Fprint(w, "\ufeffModel,Batch Size,GPU,Peak memory (GB),activations (mb)\nnew,8,nvidia t4,2.5,\"1,000\"\nnew,16,nvidia t4,-,2000\nnew,0,nvidia t4,3,1\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"rows.csv.gz": z.Bytes(), "broken.csv.gz": []byte("no gzip"), "empty.csv": nil, "notes.txt": []byte("x")} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sets, notes := load(t, dir)
	s := find(t, sets, "schedtune", Memory)
	if len(s.Rows) != 1 || s.Rows[0].Sample.PeakMiB != 2560 || s.Rows[0].GPU != "T4" || s.Rows[0].Sample.Features.ActBytes != 1000<<20 {
		t.Errorf("rows: %+v", s.Rows)
	}
	if got, want := s.SkippedText(), "1 not measured, 1 with features out of range"; got != want {
		t.Errorf("skipped %q, want %q", got, want)
	}
	if len(notes) != 2 || !strings.Contains(notes[0], "broken.csv.gz") || !strings.Contains(notes[1], "empty.csv") {
		t.Errorf("notes %q", notes)
	}
}

func TestLoadErrors(t *testing.T) {
	for name, dir := range map[string]string{"missing": filepath.Join(t.TempDir(), "none"), "nothing known": t.TempDir()} {
		if sets, err := (&Loader{}).Load(dir); err == nil {
			t.Errorf("%s: %d sets and no error", name, len(sets))
		}
	}
}

// TestTablesServeLaterFolders: measurements may lie elsewhere than the layer
// tables of their models.
func TestTablesServeLaterFolders(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "carma"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "carma", "jobs.csv"), []byte("model,memory_mib\ntinycnn_64,3000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var ld Loader
	if _, err := ld.Load(fixtures); err != nil {
		t.Fatal(err)
	}
	sets, err := ld.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if s := find(t, sets, "carma", Memory); len(s.Rows) != 1 {
		t.Errorf("%d rows, left out: %s", len(s.Rows), s.SkippedText())
	}
}

// TestRealData checks what the fixtures cannot: that the real files are
// understood as a whole.
func TestRealData(t *testing.T) {
	if *dataDir == "" {
		t.Skip("no measured data sets here: name their directory with -data")
	}
	sets, _ := load(t, *dataDir)
	for _, want := range []struct {
		dataset string
		target  Target
		n       int
	}{
		{"schedtune", Memory, 100}, {"timm_mem_a100", Memory, 500}, {"timm_speed", Time, 3000}, {"gpumemnet_cnn", Memory, 400},
		{"gpumemnet_mlp", Util, 1000}, {"neusight", Time, 40}, {"litgpt", Memory, 20}, {"sia", Time, 50}, {"lambda_bench", Time, 50},
	} {
		i := slices.IndexFunc(sets, func(s Set) bool { return s.Dataset == want.dataset && s.Target == want.target })
		if i < 0 {
			t.Logf("%s, %s: not here", want.dataset, want.target)
			continue
		}
		if n := len(sets[i].Rows); n < want.n {
			t.Errorf("%s, %s: %d rows, want %d or more; left out: %s", want.dataset, want.target, n, want.n, sets[i].SkippedText())
		}
	}
	for i := range sets {
		for j := range sets[i].Rows {
			if err := sets[i].Rows[j].Sample.Features.Check(); err != nil {
				t.Fatalf("%s: %v", sets[i].Dataset, err)
			}
		}
	}
}
