package jobspec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
	"github.com/berth-scheduler/berth/model/hf"
)

// named reports whether a model was given, by file or by name.
func (m *runFlags) named() bool {
	return m.onnx != "" || m.config != "" || m.Model != "" || m.features != ""
}

// readModel turns the model flags into the spec's features. A model that
// cannot be understood is a warning, since prediction must never keep a job
// from running; a missing file is an error.
func (r *Request) readModel(e *console.Env) (warnings []string, err error) {
	m := &r.Run
	sources := 0
	for _, s := range [...]string{m.onnx, m.config, m.Model, m.features} {
		if s != "" {
			sources++
		}
	}
	if sources > 1 {
		return nil, console.Usagef("--onnx, --config, --model and --features: give only one of them")
	}
	run, given := r.ModelRun()
	if !given && !m.named() {
		return nil, nil
	}
	f := model.Features{Source: model.SourceNone, Run: run}
	switch {
	case m.features != "":
		got, notes, err := r.takeFeatures(e)
		if err != nil {
			return nil, err
		}
		if warnings = notes; got.Known() {
			f = got
		}
	case m.named():
		if m.batch == 0 && m.Model == "" {
			warnings = append(warnings, "--batch is missing: the prediction assumes 1 sample per step")
		}
		flag, file := "--onnx", m.onnx
		read := readONNX
		switch {
		case m.config != "":
			flag, file, read = "--config", m.config, readCheckpoint
		case m.Model != "":
			flag, file, read = "--model", m.Model, FromCatalogue
		}
		got, notes, err := read(file, run)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), err != nil && m.Model != "":
			return nil, console.Usagef("%s: %w", flag, err)
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("%s: %v; the job's needs are predicted without its model", flag, err))
		default:
			f = got
			for _, n := range notes {
				warnings = append(warnings, flag+": "+n)
			}
		}
	}
	if err := f.Check(); err != nil {
		return nil, console.Usagef("model: %w", err)
	}
	r.Spec.Features = f.Encode()
	return warnings, nil
}

// ModelRun returns how the flags say that the model runs; given reports
// whether any of them was set.
func (r *Request) ModelRun() (run model.Run, given bool) {
	m := &r.Run
	run = model.Run{
		Mode: model.Training, Batch: max(1, m.batch), SeqLen: m.seqLen, Steps: m.steps,
		Precision: model.Precision(m.precision), Optimizer: model.Optimizer(m.optimizer), Framework: m.framework,
		Checkpointing: m.checkpointing, LoRARank: m.loraRank, WeightBits: m.weightBits,
	}
	if m.inference {
		run.Mode, run.Optimizer, run.Checkpointing = model.Inference, "", false
	}
	given = m.batch > 0 || m.seqLen > 0 || m.steps > 0 || m.precision != "" || m.optimizer != "" || m.inference ||
		m.framework != "" || m.checkpointing || m.loraRank > 0 || m.weightBits > 0
	return run, given
}

// ReadFile reads a model file of the caller's, of any kind. notes say what
// was assumed, left out or odd.
func ReadFile(name string, run model.Run) (f model.Features, notes []string, err error) {
	if st, err := os.Stat(name); err == nil && st.IsDir() || hf.Reads(name) {
		return readCheckpoint(name, run)
	}
	return readONNX(name, run)
}

// readONNX reads an ONNX file.
func readONNX(name string, run model.Run) (f model.Features, notes []string, err error) {
	file, err := console.OpenRegular(name)
	if err != nil {
		return f, nil, err
	}
	defer file.Close()
	g, err := graph.Read(file)
	if err != nil {
		return f, nil, fmt.Errorf("%s: %w", name, err)
	}
	base := filepath.Base(name)
	f, err = model.FromGraph(g, strings.TrimSuffix(base, filepath.Ext(base)), run)
	if f.Partial {
		notes = append(notes, "part of the graph was not understood; the prediction may be too low")
	}
	return f, append(notes, uncounted(run)...), err
}

// readCheckpoint reads what Hugging Face's tools write.
func readCheckpoint(name string, run model.Run) (f model.Features, notes []string, err error) {
	m, err := hf.Open(name)
	if err != nil {
		return f, nil, err
	}
	if f, notes, err = m.Features(run); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return f, notes, err
}

// FromCatalogue finds a model by name. Options that change a transformer's
// layers are counted only if its shape is known, so such models come first
// then.
func FromCatalogue(name string, run model.Run) (f model.Features, notes []string, err error) {
	c, notFound := hf.Lookup(name)
	changed := uncounted(run)
	if notFound == nil && changed != nil {
		f, err = c.Features(run)
		return f, c.Warnings(run), err
	}
	if f, err = model.FromCatalogue(name, run); err == nil {
		return f, changed, nil
	}
	if notFound == nil {
		f, err = c.Features(run)
		return f, c.Warnings(run), err
	}
	if near := hf.Near(name); len(near) > 0 {
		return f, nil, notFound
	}
	return f, nil, err
}

// uncounted says which flags have no effect on models other than
// transformers of known shape.
func uncounted(run model.Run) []string {
	var flags []string
	if run.LoRARank > 0 {
		flags = append(flags, "--lora-rank")
	}
	if run.WeightBits > 0 {
		flags = append(flags, "--weight-bits")
	}
	if run.Checkpointing {
		flags = append(flags, "--checkpointing")
	}
	if flags == nil {
		return nil
	}
	return []string{strings.Join(flags, " and ") + ": not taken into account for this model; for a transformer, give its config.json with --config"}
}
