package eval

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// TestReadProfile: what deploy/profile writes becomes the samples that it
// measured, columns by their names.
func TestReadProfile(t *testing.T) {
	sets, _ := load(t, fixtures)
	rows := find(t, sets, "profile_mycard", Memory).Rows
	want := model.Sample{
		GPUType: "H200", PeakMiB: 2900, UtilMilli: 615, Seconds: 0.0123, Steps: 1,
		Features: model.Features{
			Source: model.SourceGraph, Model: "resnet18",
			Run:    model.Run{Mode: model.Training, Batch: 8, Precision: graph.FP32, Optimizer: graph.AdamW, Framework: "pytorch"},
			Params: 11689512, ParamBytes: 46796448, SavedBytes: 177000000, TracedBytes: 280000000, LargestBytes: 25690112,
			InputBytes: 4816896, OutputBytes: 32000, MovedBytes: 560000000, FLOPs: 29220000000, ActBytes: 263000000, MatrixBytes: 79000000,
			Convs: 20, Linears: 1, Activations: 17, Norms: 20, Others: 11,
		},
	}
	got := rows[0].Sample
	got.Signature = ""
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("sample (-want +got):\n%s", d)
	}
	if f := rows[1].Sample.Features; f.Mode != model.Inference || f.LiveBytes != 50000000 || f.Optimizer != "" {
		t.Errorf("inference: %+v", f)
	}
	if s := rows[2].Sample; !s.Censored || s.PeakMiB != 143771 {
		t.Errorf("out of memory: %+v", s)
	}
}
