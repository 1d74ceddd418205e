package jobspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/tracer"
	"github.com/berth-scheduler/berth/model"
)

// MaxFeaturesFile is many times the size of what berth features prints.
const MaxFeaturesFile = 64 << 10

// readFeatures reads the output of berth features -o json, or berth features
// trace -o json, from a file, or from standard input for "-".
func readFeatures(e *console.Env, name string) (model.Features, error) {
	in, from := e.TypedIn(), "standard input"
	if name != "-" {
		f, err := console.OpenRegular(name)
		if err != nil {
			return model.Features{}, err
		}
		defer f.Close()
		in, from = f, name
	}
	data, err := io.ReadAll(io.LimitReader(in, MaxFeaturesFile+1))
	switch {
	case err != nil:
		return model.Features{}, fmt.Errorf("read %s: %w", from, err)
	case len(data) > MaxFeaturesFile:
		return model.Features{}, fmt.Errorf("%s: more than %d KiB; want the output of berth features -o json", from, MaxFeaturesFile>>10)
	}
	f, err := ParseFeatures(data)
	if err != nil {
		return model.Features{}, fmt.Errorf("%s: %w", from, err)
	}
	return f, nil
}

// ParseFeatures reads one JSON object of berth features and rejects
// anything else, unknown keys, and numbers out of range.
func ParseFeatures(data []byte) (model.Features, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return model.Features{}, errors.New("is empty; want the output of berth features -o json")
	}
	var v FeaturesView
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return model.Features{}, fmt.Errorf("%s; want the output of berth features -o json", jsonText(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return model.Features{}, errors.New("continues after the first object; want the output of one berth features -o json")
	}
	f := v.features()
	if err := f.Check(); err != nil {
		return model.Features{}, err
	}
	if !f.Known() {
		return model.Features{}, fmt.Errorf("source %s: does not describe a model; want graph or catalogue", console.ShortQuote(v.Source))
	}
	return f, nil
}

// jsonText returns a decoder's error in Berth's words.
func jsonText(err error) string {
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("%s is a JSON %s, want %s", t.Field, t.Value, t.Type)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "is truncated"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// features reverses NewFeaturesView. Derived values are left out.
func (v *FeaturesView) features() model.Features {
	f := model.Features{
		Source: model.Source(v.Source), Model: v.Model,
		Run: model.Run{
			Batch: v.Batch, SeqLen: v.SeqLen, Precision: model.Precision(v.Precision), Optimizer: model.Optimizer(v.Optimizer),
			Framework: v.Framework, Checkpointing: v.Checkpointing, LoRARank: v.LoRARank, WeightBits: v.WeightBits,
		},
		Partial: v.Partial,
	}
	if v.Training {
		f.Mode = model.Training
	}
	v.Fill(&f)
	return f
}

// takeFeatures reads the file of --features. Only the number of steps is not
// in it; contradicting flags change nothing, and a warning says so.
func (r *Request) takeFeatures(e *console.Env) (f model.Features, warnings []string, err error) {
	f, err = readFeatures(e, r.Run.features)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			return f, nil, console.Usagef("--features: %w", err)
		}
		return f, []string{fmt.Sprintf("--features: %v; the job's needs are predicted without its model", err)}, nil
	}
	m := &r.Run
	f.Steps = m.steps
	var ignored []string
	for _, x := range []struct {
		flag    string
		differs bool
	}{
		{"--batch", m.batch > 0 && m.batch != f.Batch}, {"--seq-len", m.seqLen > 0 && m.seqLen != f.SeqLen},
		{"--optimizer", m.optimizer != "" && m.optimizer != string(f.Optimizer)}, {"--precision", m.precision != "" && m.precision != string(f.Precision)},
		{"--inference", m.inference && f.Mode == model.Training}, {"--framework", m.framework != "" && m.framework != f.Framework},
		{"--lora-rank", m.loraRank > 0 && m.loraRank != f.LoRARank}, {"--weight-bits", m.weightBits > 0 && m.weightBits != f.WeightBits},
		{"--checkpointing", m.checkpointing && !f.Checkpointing},
	} {
		if x.differs {
			ignored = append(ignored, x.flag)
		}
	}
	if len(ignored) > 0 {
		warnings = append(warnings, "--features: was counted with other settings, so "+strings.Join(ignored, ", ")+" have no effect; give them to berth features instead")
	}
	if f.Partial {
		warnings = append(warnings, "--features: part of the model was not understood; the prediction may be too low")
	}
	return f, warnings, nil
}

// FeaturesView is what features files hold, and what features prints.
type FeaturesView struct {
	Model         string `json:"model"`
	Source        string `json:"source"`
	Training      bool   `json:"training"`
	Batch         int64  `json:"batch"`
	SeqLen        int64  `json:"seq_len"`
	Precision     string `json:"precision"`
	Optimizer     string `json:"optimizer"`
	Framework     string `json:"framework"`
	Checkpointing bool   `json:"checkpointing"`
	LoRARank      int64  `json:"lora_rank"`
	WeightBits    int64  `json:"weight_bits"`
	tracer.Counts
	Partial      bool     `json:"partial"`
	Confidence   float64  `json:"confidence"`
	Notes        []string `json:"notes"`
	EncodedBytes int      `json:"encoded_bytes"`
}

// NewFeaturesView returns the view of ft; confidence is that of its reader, 0 to 1.
func NewFeaturesView(ft *model.Features, confidence float64, notes []string) FeaturesView {
	return FeaturesView{
		Model: ft.Model, Source: string(ft.Source), Training: ft.Mode == model.Training, Batch: ft.Batch, SeqLen: ft.SeqLen,
		Precision: string(ft.Precision), Optimizer: string(ft.Optimizer), Framework: ft.Framework, Checkpointing: ft.Checkpointing,
		LoRARank: ft.LoRARank, WeightBits: ft.WeightBits, Counts: tracer.CountsOf(ft),
		Partial: ft.Partial, Confidence: confidence, Notes: append([]string{}, notes...), EncodedBytes: len(ft.Encode()),
	}
}
