package tracer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// MaxLine bounds the answer of the Python side, in bytes.
const MaxLine = 64 << 10

// Limits of an answer's texts.
const (
	maxNotes  = 8
	maxNote   = 200
	maxDetail = 4 << 10
	version   = 1
)

// ErrAnswer says that the Python side wrote something other than an answer.
var ErrAnswer = errors.New("not an answer of the tracer")

// Report is what a trace found.
type Report struct {
	// Features have Source graph and pass Check. SavedBytes and TracedBytes are
	// what was really kept: with Checkpointing, after its savings.
	Features model.Features
	// Shapes says that the model ran on shapes only, without values.
	Shapes bool
	// Torch is the version of PyTorch.
	Torch string
	// Notes say what is uncertain, each in one line.
	Notes []string
}

// line is the one line of JSON that the Python side writes.
type line struct {
	V      int    `json:"v"`
	Error  string `json:"error"`
	Detail string `json:"detail"`

	Model         string   `json:"model"`
	Framework     string   `json:"framework"`
	Torch         string   `json:"torch"`
	Mode          string   `json:"mode"`
	Precision     string   `json:"precision"`
	Optimizer     string   `json:"optimizer"`
	Training      bool     `json:"training"`
	Checkpointing bool     `json:"checkpointing"`
	Partial       bool     `json:"partial"`
	Notes         []string `json:"notes"`

	Batch  int64 `json:"batch"`
	SeqLen int64 `json:"seq_len"`
	Counts
}

// parse reads one answer. Errors other than a *ProgramError match ErrAnswer.
func parse(b []byte) (Report, error) {
	if len(b) > MaxLine {
		return Report{}, fmt.Errorf("%w: it is longer than %d bytes", ErrAnswer, MaxLine)
	}
	var l line
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Report{}, fmt.Errorf("%w: something follows it", ErrAnswer)
	}
	if l.V != version {
		return Report{}, fmt.Errorf("%w: version %d, want %d", ErrAnswer, l.V, version)
	}
	if l.Error != "" {
		return Report{}, l.failure()
	}
	r := Report{Features: l.features(), Torch: l.Torch, Shapes: l.Mode == "fake", Notes: l.Notes}
	if err := l.check(); err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if err := r.Features.Check(); err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return r, nil
}

// check checks what Features do not hold, or do not check themselves.
func (l *line) check() error {
	if l.Mode != "fake" && l.Mode != "cpu" {
		return fmt.Errorf("mode %q: must be fake or cpu", l.Mode)
	}
	if len(l.Torch) > 64 || !plain(l.Torch) {
		return fmt.Errorf("torch version %.64q: must be at most 64 bytes of plain text", l.Torch)
	}
	if !plain(l.Model) {
		return fmt.Errorf("model %.64q: must be plain text", l.Model)
	}
	if l.Framework != "pytorch" {
		return fmt.Errorf("framework %.64q: must be pytorch", l.Framework)
	}
	if l.Optimizer != "" && !l.Training {
		return fmt.Errorf("optimizer %.64q: there is none in inference", l.Optimizer)
	}
	if l.Detail != "" {
		return errors.New("detail without an error")
	}
	if len(l.Notes) > maxNotes {
		return fmt.Errorf("%d notes, at most %d are allowed", len(l.Notes), maxNotes)
	}
	for _, n := range l.Notes {
		if utf8.RuneCountInString(n) > maxNote || !plain(n) {
			return fmt.Errorf("note %.64q: must be at most %d characters of one line", n, maxNote)
		}
	}
	if l.TrainedBytes > l.ParamBytes {
		return fmt.Errorf("trained bytes %d: more than the %d of all weights", l.TrainedBytes, l.ParamBytes)
	}
	return nil
}

// plain reports whether s has no control characters.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func (l *line) failure() error {
	kind := Kind(l.Error)
	if !slices.Contains(kinds(), kind) || len(l.Detail) > maxDetail || !utf8.ValidString(l.Detail) {
		return fmt.Errorf("%w: error %.64q", ErrAnswer, l.Error)
	}
	return &ProgramError{Kind: kind, Detail: l.Detail}
}

func (l *line) features() model.Features {
	f := model.Features{
		Source: model.SourceGraph, Model: l.Model,
		Run: model.Run{
			Mode: model.Inference, Batch: l.Batch, SeqLen: l.SeqLen, Precision: graph.Precision(l.Precision),
			Optimizer: graph.Optimizer(l.Optimizer), Framework: l.Framework, Checkpointing: l.Checkpointing,
		},
		Partial: l.Partial,
	}
	if l.Training {
		f.Mode = model.Training
	}
	l.Fill(&f)
	return f
}
