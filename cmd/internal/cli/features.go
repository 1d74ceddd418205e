package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/units"
	"github.com/berth-scheduler/berth/model"
)

func newFeaturesCmd(e *Env) *cobra.Command {
	var r request
	var output string
	cmd := &cobra.Command{
		Use:   "features FILE",
		Short: "Show what is read from an ONNX file",
		Long: "Show what is read from an ONNX file. These figures, and nothing else of the file, go to the\n" +
			"coordinator when a job is submitted with --onnx.",
		Example: "  berth features resnet50.onnx --batch 64\n  berth features bert.onnx --batch 8 --seq-len 512 --inference -o json",
		Args:    oneArg("ONNX file"),
		RunE: func(_ *cobra.Command, args []string) error {
			return runFeatures(e, &r, format(output), args[0])
		},
	}
	all := modelFields()
	for i := range all {
		f := &all[i]
		if f.name == "onnx" || f.name == "model" || f.name == "steps" {
			continue
		}
		flag := cmd.Flags().VarPF(&flagValue{f, &r}, f.name, f.short, f.usage)
		if f.kind == kindTruth {
			flag.NoOptDefVal = "true"
		}
	}
	addFormat(cmd, &output, formatTable, formatJSON, formatYAML)
	return cmd
}

type featuresView struct {
	Model          string `json:"model"`
	Training       bool   `json:"training"`
	Batch          int64  `json:"batch"`
	SeqLen         int64  `json:"seq_len"`
	Precision      string `json:"precision"`
	Optimizer      string `json:"optimizer"`
	Params         int64  `json:"params"`
	ParamBytes     int64  `json:"param_bytes"`
	SavedBytes     int64  `json:"saved_bytes"`
	LiveBytes      int64  `json:"live_bytes"`
	LargestBytes   int64  `json:"largest_bytes"`
	InputBytes     int64  `json:"input_bytes"`
	OutputBytes    int64  `json:"output_bytes"`
	WorkspaceBytes int64  `json:"workspace_bytes"`
	MovedBytes     int64  `json:"moved_bytes"`
	FLOPs          int64  `json:"flops"`
	Convs          int64  `json:"convs"`
	Linears        int64  `json:"linears"`
	Activations    int64  `json:"activations"`
	Norms          int64  `json:"norms"`
	Others         int64  `json:"others"`
	Partial        bool   `json:"partial"`
	EncodedBytes   int    `json:"encoded_bytes"`
}

func runFeatures(e *Env, r *request, f format, file string) error {
	if err := r.applyFlags(); err != nil {
		return err
	}
	run, _ := r.modelRun()
	ft, err := readONNX(file, run)
	if err != nil {
		return err
	}
	v := featuresView{
		Model: ft.Model, Training: ft.Mode == model.Training, Batch: ft.Batch, SeqLen: ft.SeqLen,
		Precision: string(ft.Precision), Optimizer: string(ft.Optimizer), Params: ft.Params, ParamBytes: ft.ParamBytes,
		SavedBytes: ft.SavedBytes, LiveBytes: ft.LiveBytes, LargestBytes: ft.LargestBytes, InputBytes: ft.InputBytes,
		OutputBytes: ft.OutputBytes, WorkspaceBytes: ft.WorkspaceBytes, MovedBytes: ft.MovedBytes, FLOPs: ft.FLOPs,
		Convs: ft.Convs, Linears: ft.Linears, Activations: ft.Activations, Norms: ft.Norms, Others: ft.Others,
		Partial: ft.Partial, EncodedBytes: len(ft.Encode()),
	}
	if done, err := printList(e, f, v); done {
		return err
	}
	mode := "inference"
	if v.Training {
		mode = "training"
	}
	partial := ""
	if v.Partial {
		partial = "part of the graph was not understood; figures may be low"
	}
	keyValues(e, "",
		"Model", v.Model,
		"Counted for", fmt.Sprintf("%s, batch %d", mode, v.Batch),
		"Sequence length", positive(v.SeqLen),
		"Precision", v.Precision,
		"Optimizer", v.Optimizer,
		"Parameters", strconv.FormatInt(v.Params, 10),
		"Weights", bytesText(v.ParamBytes),
		"Kept activations", bytesText(v.SavedBytes),
		"Live activations", bytesText(v.LiveBytes),
		"Largest tensor", bytesText(v.LargestBytes),
		"Inputs, outputs", bytesText(v.InputBytes)+", "+bytesText(v.OutputBytes),
		"Workspace", bytesText(v.WorkspaceBytes),
		"Forward FLOPs", fmt.Sprintf("%.3g", float64(v.FLOPs)),
		"Layers", fmt.Sprintf("%d convolutions, %d linear, %d activations, %d norms, %d others", v.Convs, v.Linears, v.Activations, v.Norms, v.Others),
		"Note", partial,
	)
	return nil
}

func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// bytesText rounds up to whole MiB, so that little does not look like nothing.
func bytesText(b int64) string {
	if b == 0 {
		return "0"
	}
	return units.HumanMiB((b + 1<<20 - 1) >> 20)
}
