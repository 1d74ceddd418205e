package tracer

import "github.com/berth-scheduler/berth/model"

// Counts are what a trace, and a file of features, say of a model's graph.
type Counts struct {
	Params         int64 `json:"params"`
	ParamBytes     int64 `json:"param_bytes"`
	TrainedBytes   int64 `json:"trained_bytes"`
	SavedBytes     int64 `json:"saved_bytes"`
	LiveBytes      int64 `json:"live_bytes"`
	LargestBytes   int64 `json:"largest_bytes"`
	InputBytes     int64 `json:"input_bytes"`
	OutputBytes    int64 `json:"output_bytes"`
	WorkspaceBytes int64 `json:"workspace_bytes"`
	MovedBytes     int64 `json:"moved_bytes"`
	ActBytes       int64 `json:"act_bytes"`
	MatrixBytes    int64 `json:"matrix_bytes"`
	ScoreBytes     int64 `json:"score_bytes"`
	TracedBytes    int64 `json:"traced_bytes"`
	FLOPs          int64 `json:"flops"`
	Blocks         int64 `json:"blocks"`
	Width          int64 `json:"width"`
	Convs          int64 `json:"convs"`
	Linears        int64 `json:"linears"`
	Activations    int64 `json:"activations"`
	Norms          int64 `json:"norms"`
	Others         int64 `json:"others"`
}

// CountsOf returns the counts of features.
func CountsOf(f *model.Features) Counts {
	return Counts{
		Params: f.Params, ParamBytes: f.ParamBytes, TrainedBytes: f.TrainedBytes, SavedBytes: f.SavedBytes, LiveBytes: f.LiveBytes,
		LargestBytes: f.LargestBytes, InputBytes: f.InputBytes, OutputBytes: f.OutputBytes, WorkspaceBytes: f.WorkspaceBytes,
		MovedBytes: f.MovedBytes, ActBytes: f.ActBytes, MatrixBytes: f.MatrixBytes, ScoreBytes: f.ScoreBytes, TracedBytes: f.TracedBytes,
		FLOPs: f.FLOPs, Blocks: f.Blocks, Width: f.Width, Convs: f.Convs, Linears: f.Linears, Activations: f.Activations,
		Norms: f.Norms, Others: f.Others,
	}
}

// Fill sets the counts of features.
func (c *Counts) Fill(f *model.Features) {
	f.Params, f.ParamBytes, f.TrainedBytes, f.SavedBytes, f.LiveBytes = c.Params, c.ParamBytes, c.TrainedBytes, c.SavedBytes, c.LiveBytes
	f.LargestBytes, f.InputBytes, f.OutputBytes, f.WorkspaceBytes = c.LargestBytes, c.InputBytes, c.OutputBytes, c.WorkspaceBytes
	f.MovedBytes, f.ActBytes, f.MatrixBytes, f.ScoreBytes, f.TracedBytes = c.MovedBytes, c.ActBytes, c.MatrixBytes, c.ScoreBytes, c.TracedBytes
	f.FLOPs, f.Blocks, f.Width, f.Convs, f.Linears, f.Activations = c.FLOPs, c.Blocks, c.Width, c.Convs, c.Linears, c.Activations
	f.Norms, f.Others = c.Norms, c.Others
}
