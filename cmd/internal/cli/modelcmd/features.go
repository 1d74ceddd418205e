package modelcmd

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/model"
)

// NewFeaturesCmd returns the command features.
func NewFeaturesCmd(e *console.Env) *cobra.Command {
	var r jobspec.Request
	var output string
	cmd := &cobra.Command{
		Use:   "features (FILE | --model NAME)",
		Short: "Show what is read from a model file",
		Long: "Show what is read from a model file: an ONNX file, a transformer's config.json, its weights\n" +
			"(.safetensors, or the .safetensors.index.json of several), or a checkpoint directory. Only these\n" +
			"figures are sent to the coordinator when a job is submitted with --onnx or --config.",
		Example: "  berth features resnet50.onnx --batch 64\n  berth features bert.onnx --batch 8 --seq-len 512 --inference -o json\n" +
			"  berth features ./my-checkpoint --batch 4 --seq-len 1024 --lora-rank 8\n  berth features --model llama-2-7b --batch 1 --weight-bits 4 --inference",
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			return runFeatures(e, &r, console.Format(output), args)
		},
	}
	all := jobspec.ModelFields()
	for i := range all {
		f := &all[i]
		if f.Name == "onnx" || f.Name == "config" || f.Name == "steps" || f.Name == "features" {
			continue
		}
		flag := cmd.Flags().VarPF(jobspec.NewFlagValue(f, &r), f.Name, f.Short, f.Usage)
		if f.Kind == jobspec.KindTruth {
			flag.NoOptDefVal = "true"
		}
	}
	console.AddFormat(cmd, &output, console.FormatTable, console.FormatJSON, console.FormatYAML)
	cmd.AddCommand(newTraceCmd(e))
	return cmd
}

func runFeatures(e *console.Env, r *jobspec.Request, f console.Format, files []string) error {
	if err := r.ApplyFlags(); err != nil {
		return err
	}
	run, _ := r.ModelRun()
	read, from := jobspec.ReadFile, r.Run.Model
	switch {
	case len(files) == 1 && from == "":
		from = files[0]
	case len(files) == 0 && from != "":
		read = jobspec.FromCatalogue
	default:
		return console.Usagef("want one file, or --model NAME, such as: berth features model.onnx")
	}
	ft, notes, err := read(from, run)
	if err != nil {
		return err
	}
	sure, err := confidence(&ft)
	if err != nil {
		return err
	}
	v := jobspec.NewFeaturesView(&ft, sure, notes)
	if done, err := console.PrintList(e, f, v); done {
		return err
	}
	console.KeyValues(e, "", featureRows(&v)...)
	for _, n := range notes {
		e.Warnf("warning: %s", console.Escape(n))
	}
	return nil
}

// confidence returns how sure a predictor with nothing but f is of its memory
// prediction, 0 to 1.
func confidence(f *model.Features) (float64, error) {
	p, err := model.NewPredictor(model.DefaultWeights(), nil)
	if err != nil {
		return 0, err
	}
	q := p.Predict(model.Request{Features: *f, Types: []model.TypeInfo{{Name: "A100-SXM4-80GB"}}})
	return q[0].Confidence, nil
}

// featureRows returns alternating names and values; rows without a value are left out.
func featureRows(v *jobspec.FeaturesView) []string {
	mode := "inference"
	if v.Training {
		mode = "training"
	}
	if v.Checkpointing {
		mode += " with checkpointing"
	}
	bits := ""
	if v.WeightBits > 0 {
		bits = fmt.Sprintf(", %d bits each", v.WeightBits)
	}
	some := func(n int64) string {
		if n == 0 {
			return ""
		}
		return console.BytesText(n)
	}
	blocks := ""
	if v.Blocks > 0 {
		blocks = fmt.Sprintf("%d of width %d", v.Blocks, v.Width)
	}
	return []string{
		"Model", v.Model,
		"Counted for", fmt.Sprintf("%s, batch %d", mode, v.Batch),
		"Sequence length", positive(v.SeqLen),
		"Precision", v.Precision,
		"Optimizer", v.Optimizer,
		"Adapter rank", positive(v.LoRARank),
		"Parameters", strconv.FormatInt(v.Params, 10),
		"Weights", console.BytesText(v.ParamBytes) + bits,
		"Trained weights", some(v.TrainedBytes),
		"Kept activations", console.BytesText(v.SavedBytes),
		"Live activations", console.BytesText(v.LiveBytes),
		"Attention scores", some(v.ScoreBytes),
		"Largest tensor", console.BytesText(v.LargestBytes),
		"Inputs, outputs", console.BytesText(v.InputBytes) + ", " + console.BytesText(v.OutputBytes),
		"Workspace", console.BytesText(v.WorkspaceBytes),
		"Forward FLOPs", fmt.Sprintf("%.3g", float64(v.FLOPs)),
		"Blocks", blocks,
		"Layers", fmt.Sprintf("%d convolutions, %d linear, %d activations, %d norms, %d others", v.Convs, v.Linears, v.Activations, v.Norms, v.Others),
		"Confidence", fmt.Sprintf("%.0f%%", 100*v.Confidence),
	}
}

func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
