package tracer

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-scheduler/berth/deploy/profile/torchfork"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// realPython finds an interpreter that has PyTorch: that of PATH, or Debian's
// own.
func realPython(t *testing.T) string { return pythons(t).Real }

// pythonWithTorch is that, but for importing PyTorch each time.
func pythonWithTorch(t *testing.T) string { return pythons(t).Fork }

func pythons(t *testing.T) torchfork.Python {
	t.Helper()
	p, err := interpreters()
	if err != nil {
		t.Skipf("no python3 here has PyTorch; on Debian: apt-get install python3-torch\n%v", err)
	}
	return p
}

// interpreters looks once, since importing PyTorch takes seconds.
var interpreters = sync.OnceValues(func() (torchfork.Python, error) { return torchfork.Start("python3", "/usr/bin/python3") })

func script(t *testing.T, args ...string) Config {
	cfg := config(pythonWithTorch(t))
	cfg.Factory, cfg.Target, cfg.Args = false, args[0], args[1:]
	return cfg
}

func trace(t *testing.T, cfg Config) Report {
	t.Helper()
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestScript checks every figure of a small network against counting by hand,
// in an interpreter of its own.
func TestScript(t *testing.T) {
	t.Parallel()
	cfg := script(t, "mlp.py", "--batch", "32")
	cfg.Python = realPython(t)
	r := trace(t, cfg)
	const in, hidden, out, batch = 64, 128, 10, 32
	const params = in*hidden + hidden + hidden*out + out
	want := model.Features{
		Source: model.SourceGraph, Model: "Sequential",
		Run:    model.Run{Mode: model.Training, Batch: batch, Precision: graph.FP32, Optimizer: graph.Adam, Framework: "pytorch"},
		Params: params, ParamBytes: 4 * params,
		// Inputs of both layers, which the first one's ReLU shares, and of the
		// loss: log-probabilities, labels and the sum of their weights.
		SavedBytes:   4*batch*(in+hidden+out) + 8*batch + 4,
		LargestBytes: 4 * batch * hidden, InputBytes: 4 * batch * in, OutputBytes: 4 * batch * out,
		FLOPs:    2*batch*(in*hidden+hidden*out) + batch*hidden,
		ActBytes: 4 * batch * (2*hidden + out), MatrixBytes: 4 * batch * (hidden + out),
		Linears: 2, Activations: 1,
	}
	opt := cmpopts.IgnoreFields(model.Features{}, "MovedBytes", "TracedBytes")
	if d := cmp.Diff(want, r.Features, opt); d != "" {
		t.Error(d)
	}
	// Weights and gradients, and what is live in the middle of the step.
	least, most := 2*want.ParamBytes, 2*want.ParamBytes+4*want.SavedBytes
	if r.Features.TracedBytes < least || r.Features.TracedBytes > most {
		t.Errorf("traced %d bytes, want %d to %d", r.Features.TracedBytes, least, most)
	}
	if len(r.Notes) != 0 || r.Shapes {
		t.Errorf("notes %q, shapes %v", r.Notes, r.Shapes)
	}
}

// TestWays runs programs that are traced in spite of how they behave.
func TestWays(t *testing.T) {
	t.Parallel()
	for way, check := range map[string]func(*testing.T, *Report){
		"stubborn": func(t *testing.T, r *Report) {
			if r.Features.Optimizer != graph.SGD {
				t.Errorf("optimizer %q", r.Features.Optimizer)
			}
		},
		"cuda": func(t *testing.T, r *Report) {
			if f := &r.Features; f.Params != 72 || f.Batch != 4 || f.Optimizer != graph.Momentum {
				t.Errorf("%d parameters, batch %d, optimizer %q", f.Params, f.Batch, f.Optimizer)
			}
		},
		"amp": func(t *testing.T, r *Report) {
			if f := &r.Features; f.Precision != graph.AMP || f.ParamBytes != 4*f.Params || f.OutputBytes != 2*4*64 || f.Optimizer != graph.AdamW {
				t.Errorf("precision %q, weights %d, output %d, optimizer %q", f.Precision, f.ParamBytes, f.OutputBytes, f.Optimizer)
			}
		},
		"frozen": func(t *testing.T, r *Report) {
			if f := &r.Features; f.TrainedBytes != 4*(32*8+8) || f.Params != 33*32+33*8 {
				t.Errorf("trained %d of %d parameters", f.TrainedBytes, f.Params)
			}
		},
		"accumulate": func(t *testing.T, r *Report) {
			if r.Features.Optimizer != graph.Adam {
				t.Errorf("optimizer %q", r.Features.Optimizer)
			}
		},
		"validate": func(t *testing.T, r *Report) {
			f := &r.Features
			if f.Batch != 4 || f.FLOPs != 2*4*8*8 || f.Params != 9*8+9*4 || f.TrainedBytes != 4*9*8 || f.Optimizer != graph.RMSProp {
				t.Errorf("batch %d, %d FLOPs, %d parameters, %d of %d bytes trained, optimizer %q",
					f.Batch, f.FLOPs, f.Params, f.TrainedBytes, f.ParamBytes, f.Optimizer)
			}
		},
		"own-optimizer": func(t *testing.T, r *Report) {
			if r.Features.Optimizer != graph.AdamW || !r.Features.Partial || len(r.Notes) != 1 {
				t.Errorf("optimizer %q, partial %v, notes %q", r.Features.Optimizer, r.Features.Partial, r.Notes)
			}
		},
	} {
		t.Run(way, func(t *testing.T) {
			r := trace(t, script(t, "cases.py", way))
			check(t, &r)
		})
	}
}

// TestFailures runs programs that cannot be traced.
func TestFailures(t *testing.T) {
	t.Parallel()
	for way, c := range map[string]struct {
		kind Kind
		text string
	}{
		"exit":     {KindNoStep, "the script exited with 7"},
		"forward":  {KindNoStep, "for inference give --inference"},
		"function": {KindNoStep, "no model of torch.nn was called; name a function"},
		"shape":    {KindCrash, "cases.py:"},
		"die":      {KindExit, "segmentation fault"},
		"garbage":  {KindGarbage, "not an answer"},
		"memory":   {KindMemory, "raise --memory"},
		"spin":     {KindTimeout, "no step was done after 2s"},
	} {
		t.Run(way, func(t *testing.T) {
			cfg := script(t, "cases.py", way)
			cfg.MemBytes = 16 << 30
			if c.kind == KindTimeout {
				cfg.Timeout = 2 * time.Second
			}
			wantKind(t, t.Context(), cfg, c.kind, c.text)
		})
	}
}

func TestChildrenOfAScript(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	wantKind(t, t.Context(), script(t, "cases.py", "children", pids), KindNoStep, "the script ended")
	checkDead(t, pids)
}

func TestInference(t *testing.T) {
	t.Parallel()
	cfg := script(t, "cases.py", "forward")
	cfg.Inference = true
	f := trace(t, cfg).Features
	if f.Mode != model.Inference || f.Optimizer != "" || f.SavedBytes != 0 || f.LiveBytes != 2*4*4*8 || f.Batch != 4 {
		t.Errorf("%+v", f)
	}
}

func factory(t *testing.T, name string) Config {
	cfg := config(pythonWithTorch(t))
	cfg.Target = "factory.py:" + name
	return cfg
}

// TestFactory checks a convolution's figures against counting by hand, by
// shapes alone and with values.
func TestFactory(t *testing.T) {
	t.Parallel()
	const batch, plane = 6, 32 * 32
	const params = 3*16*9 + 16 + 2*16 + 16*256*10 + 10
	want := model.Features{
		Source: model.SourceGraph, Model: "Sequential",
		Run:    model.Run{Mode: model.Training, Batch: batch, Precision: graph.FP32, Optimizer: graph.Momentum, Framework: "pytorch"},
		Params: params, ParamBytes: 4*(params+2*16) + 8, // running statistics, and how many there were
		// Input, output of the convolution and of ReLU, what dropout left of the
		// pooled values with their places and, as on a GPU, a byte each of its
		// mask, and the norm's mean and deviation.
		SavedBytes:   4*batch*(3*plane+2*16*plane+16*256) + (8+1)*batch*16*256 + 2*4*16,
		LargestBytes: 4 * batch * 16 * plane, InputBytes: 4 * batch * 3 * plane, OutputBytes: 4 * batch * 10,
		WorkspaceBytes: 4 * 9 * batch * 3 * plane, // too few channels for Winograd
		FLOPs:          batch * (16*plane*(2*27+8+1) + 2*16*256 + 2*16*256*10),
		MatrixBytes:    4 * batch * (16*plane + 10),
		Convs:          1, Linears: 1, Activations: 1, Norms: 1, Others: 2,
	}
	for _, values := range []bool{false, true} {
		cfg := factory(t, "conv")
		cfg.Batch, cfg.Optimizer, cfg.Values = batch, graph.Momentum, values
		r := trace(t, cfg)
		opt := cmpopts.IgnoreFields(model.Features{}, "MovedBytes", "TracedBytes", "ActBytes")
		if d := cmp.Diff(want, r.Features, opt); d != "" {
			t.Errorf("values %v: %s", values, d)
		}
		if r.Shapes == values {
			t.Errorf("values %v: shapes %v, notes %q", values, r.Shapes, r.Notes)
		}
	}
}

func TestCheckpointing(t *testing.T) {
	t.Parallel()
	plain, again := trace(t, factory(t, "plain")).Features, trace(t, factory(t, "checkpointed")).Features
	if plain.Checkpointing || !again.Checkpointing {
		t.Errorf("checkpointing %v and %v", plain.Checkpointing, again.Checkpointing)
	}
	if again.SavedBytes >= plain.SavedBytes/2 || again.TracedBytes >= plain.TracedBytes {
		t.Errorf("saved %d and %d, traced %d and %d bytes", plain.SavedBytes, again.SavedBytes, plain.TracedBytes, again.TracedBytes)
	}
	if again.FLOPs != plain.FLOPs || again.Linears != plain.Linears {
		t.Errorf("what is computed again counts: %d and %d FLOPs", plain.FLOPs, again.FLOPs)
	}
}

func TestAttention(t *testing.T) {
	t.Parallel()
	cfg := factory(t, "attention")
	cfg.Batch, cfg.SeqLen = 4, 24
	f := trace(t, cfg).Features
	if f.Batch != 4 || f.SeqLen != 24 || f.Blocks != 3 || f.Width != 32 || f.Optimizer != graph.AdamW {
		t.Errorf("batch %d, sequence %d, %d blocks of width %d, optimizer %q", f.Batch, f.SeqLen, f.Blocks, f.Width, f.Optimizer)
	}
	if scores := int64(3 * 4 * 4 * 4 * 24 * 24); f.ScoreBytes != 0 && f.ScoreBytes != scores { // 0: computed in tiles
		t.Errorf("scores of %d bytes, want %d", f.ScoreBytes, scores)
	}
}

// TestAttentionIsFused: however it is called, nothing but its dropout is changed.
func TestAttentionIsFused(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(realPython(t), "-c", `
import re, types
source = re.search(r"def fuse_attention.*?\n\n\n", open("trace.py").read(), re.S).group()
exec(source)
seen = lambda query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None: print(query, key, value, attn_mask, dropout_p, is_causal, scale)
f = types.SimpleNamespace(scaled_dot_product_attention=seen)
fuse_attention(f)
f.scaled_dot_product_attention(1, 2, 3, dropout_p=0.1, is_causal=True)
f.scaled_dot_product_attention(1, 2, 3, 4, 0.1, True, scale=5)
f.scaled_dot_product_attention(query=1, key=2, value=3, attn_mask=4, scale=5)
fuse_attention(types.SimpleNamespace())
`).CombinedOutput()
	if want := "1 2 3 None 0.0 True None\n1 2 3 4 0.0 True 5\n1 2 3 4 0.0 False 5\n"; err != nil || string(out) != want {
		t.Errorf("%v:\n%swant\n%s", err, out, want)
	}
}

func TestRecurrent(t *testing.T) {
	t.Parallel()
	f := trace(t, factory(t, "recurrent")).Features
	const batch, steps, in, hidden = 4, 12, 16, 32
	least := int64(2 * batch * steps * 4 * hidden * (in + 3*hidden))
	if f.FLOPs < least || f.FLOPs > least*3/2 {
		t.Errorf("%d FLOPs, want a little more than %d", f.FLOPs, least)
	}
}

func TestBrokenFactories(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		target string
		kind   Kind
		text   string
	}{
		"raises":      {"factory.py:broken", KindCrash, "broken on purpose"},
		"no function": {"factory.py:absent", KindFactory, "absent"},
		"no module":   {"absent_module:f", KindFactory, "No module named"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := factory(t, "")
			cfg.Target = c.target
			wantKind(t, t.Context(), cfg, c.kind, c.text)
		})
	}
}

// TestPrecision changes a model's type.
func TestPrecision(t *testing.T) {
	t.Parallel()
	cfg := factory(t, "plain")
	full := trace(t, cfg).Features
	cfg.Precision = graph.BF16
	half := trace(t, cfg).Features
	if half.Precision != graph.BF16 || half.ParamBytes*2 != full.ParamBytes || half.SavedBytes*2 != full.SavedBytes || half.Params != full.Params {
		t.Errorf("%s: weights %d of %d, saved %d of %d", half.Precision, half.ParamBytes, full.ParamBytes, half.SavedBytes, full.SavedBytes)
	}
}

// TestNoTorch hides PyTorch from an interpreter that is there.
func TestNoTorch(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 here")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "torch.py"), []byte("raise ImportError('hidden')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config(python)
	cfg.Env = append(cfg.Env, "PYTHONPATH="+dir)
	wantKind(t, t.Context(), cfg, KindNoTorch, "--python")
}

// TestOutput: what the program prints goes where it is wanted, and last words
// of a failure are kept.
func TestOutput(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	cfg := script(t, "cases.py", "print")
	cfg.Output = &out
	_, err := Run(t.Context(), cfg)
	var e *ProgramError
	if !errors.As(err, &e) || e.Output != "no torch in here" || out.String() != "no torch in here\n" {
		t.Errorf("error %v, output %q", err, out.String())
	}
}
