package tracer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

const good = `{"v":1,"model":"Net","framework":"pytorch","torch":"2.5.1+cpu","mode":"fake","precision":"bf16","optimizer":"adamw",` +
	`"training":true,"checkpointing":true,"partial":false,"notes":["a note"],"batch":8,"seq_len":128,"params":10,"param_bytes":40,` +
	`"trained_bytes":20,"saved_bytes":300,"live_bytes":0,"largest_bytes":30,"input_bytes":4,"output_bytes":5,"workspace_bytes":6,` +
	`"moved_bytes":7,"flops":9007199254740993,"act_bytes":8,"matrix_bytes":9,"traced_bytes":500,"score_bytes":11,"blocks":12,"width":13,` +
	`"convs":1,"linears":2,"activations":3,"norms":4,"others":5}`

func TestParse(t *testing.T) {
	got, err := parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	want := Report{
		Features: model.Features{
			Source: model.SourceGraph, Model: "Net",
			Run: model.Run{
				Mode: model.Training, Batch: 8, SeqLen: 128, Precision: graph.BF16, Optimizer: graph.AdamW,
				Framework: "pytorch", Checkpointing: true,
			},
			Params: 10, ParamBytes: 40, TrainedBytes: 20, SavedBytes: 300, LargestBytes: 30, InputBytes: 4, OutputBytes: 5,
			WorkspaceBytes: 6, MovedBytes: 7, FLOPs: 9007199254740993, ActBytes: 8, MatrixBytes: 9, TracedBytes: 500, ScoreBytes: 11,
			Blocks: 12, Width: 13, Convs: 1, Linears: 2, Activations: 3, Norms: 4, Others: 5,
		},
		Shapes: true, Torch: "2.5.1+cpu", Notes: []string{"a note"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestParseRefuses(t *testing.T) {
	with := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the sample has no %q", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	for name, c := range map[string]struct{ in, want string }{
		"empty":              {"", "EOF"},
		"not JSON":           {"loss: 0.3", "invalid character"},
		"a list":             {"[1]", "cannot unmarshal"},
		"cut off":            {good[:len(good)/2], "EOF"},
		"two answers":        {good + good, "something follows"},
		"other version":      {with(`"v":1`, `"v":2`), "version 2, want 1"},
		"no version":         {with(`"v":1,`, ""), "version 0, want 1"},
		"unknown field":      {with(`"v":1`, `"v":1,"shell":"x"`), `unknown field "shell"`},
		"NaN":                {with(`"flops":9007199254740993`, `"flops":NaN`), "invalid character"},
		"infinite":           {with(`"flops":9007199254740993`, `"flops":1e400`), "cannot unmarshal"},
		"fraction":           {with(`"batch":8`, `"batch":8.5`), "cannot unmarshal"},
		"text for a number":  {with(`"batch":8`, `"batch":"8"`), "cannot unmarshal"},
		"negative":           {with(`"saved_bytes":300`, `"saved_bytes":-1`), "saved bytes -1"},
		"beyond 2^60":        {with(`"saved_bytes":300`, `"saved_bytes":1152921504606846977`), "saved bytes"},
		"beyond 2^63":        {with(`"saved_bytes":300`, `"saved_bytes":9223372036854775808`), "cannot unmarshal"},
		"batch 0":            {with(`"batch":8`, `"batch":0`), "batch 0"},
		"too many layers":    {with(`"convs":1`, `"convs":100000000`), "convolutions"},
		"odd precision":      {with(`"bf16"`, `"fp8"`), `precision "fp8"`},
		"odd optimizer":      {with(`"adamw"`, `"lion"`), `optimizer "lion"`},
		"odd mode":           {with(`"fake"`, `"cuda"`), `mode "cuda"`},
		"odd framework":      {with(`"pytorch"`, `"jax"`), `framework "jax"`},
		"long model":         {with(`"Net"`, `"`+strings.Repeat("x", 65)+`"`), "model name"},
		"escape in model":    {with(`"Net"`, `"\u001b[2J"`), "plain text"},
		"escape in a note":   {with(`"a note"`, `"\u001b[2J"`), "one line"},
		"long note":          {with(`"a note"`, `"`+strings.Repeat("x", 201)+`"`), "at most 200"},
		"many notes":         {with(`"a note"`, strings.Repeat(`"x",`, 8)+`"x"`), "9 notes"},
		"long torch":         {with(`2.5.1+cpu`, strings.Repeat("2", 65)), "torch version"},
		"trained over all":   {with(`"trained_bytes":20`, `"trained_bytes":41`), "trained bytes 41"},
		"inference with opt": {with(`"training":true`, `"training":false`), "none in inference"},
		"detail, no error":   {with(`"v":1`, `"v":1,"detail":"x"`), "detail without"},
		"unknown error":      {`{"v":1,"error":"timeout","detail":"x"}`, `error "timeout"`},
		"long detail":        {`{"v":1,"error":"crash","detail":"` + strings.Repeat("x", maxDetail+1) + `"}`, "error"},
		"long":               {`{"v":1,"model":"` + strings.Repeat("x", MaxLine) + `"}`, "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(c.in))
			if !errors.Is(err, ErrAnswer) {
				t.Fatalf("error %v, want one that matches ErrAnswer", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, want %q in it", err, c.want)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	for _, k := range kinds() {
		_, err := parse(fmt.Appendf(nil, `{"v":1,"error":%q,"detail":"what"}`, k))
		var e *ProgramError
		if !errors.As(err, &e) || e.Kind != k || e.Detail != "what" {
			t.Errorf("kind %s became %v", k, err)
		}
	}
}

// FuzzParse: what is taken is in range and survives the wire.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"v":1,"error":"crash","detail":"x.py:3: ValueError: y"}`))
	f.Add([]byte(`{"v":1,"mode":"cpu","framework":"pytorch","batch":1,"flops":1e3}`))
	f.Add([]byte(`{"v":1,"mode":"cpu","framework":"pytorch","batch":1,"model":"\ud800"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parse(b)
		if err != nil {
			var e *ProgramError
			if !errors.Is(err, ErrAnswer) && !errors.As(err, &e) {
				t.Fatalf("error of neither kind: %v", err)
			}
			return
		}
		if err := r.Features.Check(); err != nil {
			t.Fatal(err)
		}
		if !r.Features.Known() {
			t.Fatal("taken, but not known")
		}
		back, err := model.DecodeFeatures(r.Features.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(r.Features, back); d != "" {
			t.Fatal(d)
		}
	})
}
