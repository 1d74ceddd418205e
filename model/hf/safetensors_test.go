package hf

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// tensorFile is the start of a safetensors file: tensors is name, type, shape.
func tensorFile(t testing.TB, tensors ...any) []byte {
	t.Helper()
	head := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	at := int64(0)
	for i := 0; i < len(tensors); i += 3 {
		shape, elems := tensors[i+2].([]int64), int64(1)
		for _, d := range shape {
			elems *= d
		}
		end := at + elems*dtypeBits(tensors[i+1].(string))/8
		head[tensors[i].(string)] = map[string]any{"dtype": tensors[i+1], "shape": shape, "data_offsets": []int64{at, end}}
		at = end
	}
	data, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	return framed(string(data))
}

func framed(head string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
}

// tiny is a Llama of two layers.
func tiny() []any {
	out := []any{"model.embed_tokens.weight", "BF16", []int64{1000, 256}, "lm_head.weight", "BF16", []int64{1000, 256}, "model.norm.weight", "BF16", []int64{256}}
	for _, l := range []string{"0", "1"} {
		p := "model.layers." + l + "."
		out = append(out,
			p+"self_attn.q_proj.weight", "BF16", []int64{256, 256}, p+"self_attn.k_proj.weight", "BF16", []int64{64, 256},
			p+"self_attn.v_proj.weight", "BF16", []int64{64, 256}, p+"self_attn.o_proj.weight", "BF16", []int64{256, 256},
			p+"mlp.gate_proj.weight", "BF16", []int64{512, 256}, p+"mlp.up_proj.weight", "BF16", []int64{512, 256}, p+"mlp.down_proj.weight", "BF16", []int64{256, 512},
			p+"input_layernorm.weight", "BF16", []int64{256}, p+"post_attention_layernorm.weight", "BF16", []int64{256})
	}
	return out
}

const (
	tinyParams = 2*1000*256 + 256 + 2*(2*256*256+2*64*256+3*512*256+2*256)
	tinyConfig = `{"model_type":"llama","hidden_size":256,"intermediate_size":512,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":1,"vocab_size":1000,"torch_dtype":"bfloat16","max_position_embeddings":128}`
)

func TestReadSafetensors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		tensors []any
		want    Weights
	}{
		{"llama", tiny(), Weights{Params: tinyParams, Bytes: 2 * tinyParams, Tensors: 21, Blocks: 2, Precision: graph.BF16}},
		{"adapters", []any{
			"base_model.model.layers.0.self_attn.q_proj.lora_A.weight", "F32", []int64{16, 256}, "base_model.model.layers.0.self_attn.q_proj.lora_B.weight", "F32", []int64{256, 16},
		}, Weights{Tensors: 2, LoRARank: 16, LoRAParams: 2 * 16 * 256}},
		{"both sides' blocks", []any{"encoder.block.0.layer.0.q.weight", "F32", []int64{4, 4}, "encoder.block.1.layer.0.q.weight", "F32", []int64{4, 4}, "decoder.block.0.layer.1.q.weight", "F32", []int64{4, 4}},
			Weights{Params: 48, Bytes: 192, Tensors: 3, Blocks: 3, Precision: graph.FP32}},
		{"four bits of bitsandbytes", []any{
			"h.0.up.weight", "U8", []int64{512, 1}, "h.0.up.weight.absmax", "F32", []int64{16}, "h.0.up.weight.quant_map", "F32", []int64{16}, "ln.weight", "F16", []int64{8},
		}, Weights{Params: 1032, Bytes: 512 + 64 + 64 + 16, Tensors: 4, Blocks: 1, Precision: graph.FP16, WeightBits: 4}},
		{"four bits of GPTQ", []any{"h.0.up.qweight", "I32", []int64{32, 64}, "h.0.up.qzeros", "I32", []int64{4}, "h.0.up.scales", "F16", []int64{64}},
			Weights{Params: 32 * 64 * 8, Bytes: 4*32*64 + 16 + 128, Tensors: 3, Blocks: 1, WeightBits: 4}},
		{"eight bits", []any{"h.0.up.weight", "F8_E4M3", []int64{64, 64}, "h.0.up.weight_scale", "F32", []int64{1}, "n", "BF16", []int64{8}},
			Weights{Params: 4104, Bytes: 4096 + 4 + 16, Tensors: 3, Blocks: 1, Precision: graph.BF16, WeightBits: 8}},
		{"a scalar and an index", []any{"a", "F32", []int64{}, "position_ids", "I64", []int64{1, 512}}, Weights{Params: 1, Bytes: 4 + 4096, Tensors: 2, Precision: graph.FP32}},
		{"nothing", nil, Weights{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := ReadSafetensors(bytes.NewReader(tensorFile(t, tc.tensors...)))
			if err != nil {
				t.Fatal(err)
			}
			w := tc.want
			if got.Params != w.Params || got.Bytes != w.Bytes || got.Tensors != w.Tensors || got.Blocks != w.Blocks || got.LoRARank != w.LoRARank ||
				got.LoRAParams != w.LoRAParams || got.Precision != w.Precision || got.WeightBits != w.WeightBits {
				t.Errorf("got  %+v\nwant %+v", got, w)
			}
		})
	}
}

// endless counts what is read of a file whose data has no end.
type endless struct {
	head []byte
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.head)
	e.head = e.head[n:]
	if n == 0 {
		n = len(p)
	}
	e.read += n
	return n, nil
}

func TestDataIsNeverRead(t *testing.T) {
	t.Parallel()
	head := tensorFile(t, "a", "F32", []int64{1 << 40})
	r := &endless{head: head}
	w, err := ReadSafetensors(r)
	if err != nil || w.Params != 1<<40 || r.read > len(head) {
		t.Errorf("%d parameters, %d bytes read of a header of %d: %v", w.Params, r.read, len(head), err)
	}
}

func TestReadSafetensorsRefuses(t *testing.T) {
	t.Parallel()
	length := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
	for _, tc := range []struct {
		name, file, want string
		is               error
	}{
		{"empty", "", "shorter than its length", ErrMalformed},
		{"half a length", "\x01\x02", "shorter than its length", ErrMalformed},
		{"8 EiB of header", length(1<<63) + "{}", "header of 9223372036854775808 bytes", ErrLimit},
		{"all ones", length(math.MaxUint64) + "{}", "at most", ErrLimit},
		{"a pickle", "\x80\x02}q\x00(X\x05\x00\x00\x00", "at most", ErrLimit},
		{"more header than file", length(100) + "{}", "ends within its header", ErrMalformed},
		{"no JSON", string(framed("hello")), "want a JSON object", ErrMalformed},
		{"deep", string(framed(`{"a":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}`)), "nested deeper", ErrLimit},
		{"a tensor twice", string(framed(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`)), `tensor "a" is there twice`, ErrMalformed},
		{"negative dimension", string(framed(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`)), "dimension -1", ErrMalformed},
		{"offsets that fall", string(framed(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`)), "want two that rise", ErrMalformed},
		{"negative offsets", string(framed(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`)), "want two that rise", ErrMalformed},
		{"no offsets", string(framed(`{"a":{"dtype":"F32","shape":[1]}}`)), "want two that rise", ErrMalformed},
		{"sizes that lie", string(framed(`{"a":{"dtype":"F32","shape":[1000],"data_offsets":[0,4]}}`)), "1000 values of F32 in 4 bytes", ErrMalformed},
		{"sizes that overflow", string(framed(`{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}}`)), "values of F32 in 4 bytes", ErrMalformed},
		{"sizes beyond all", string(framed(`{"a":{"dtype":"X","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}}`)), "larger than", ErrLimit},
		{"too many dimensions", string(framed(`{"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}}`)), "17 dimensions", ErrLimit},
		{"NaN for a shape", string(framed(`{"a":{"dtype":"F32","shape":NaN,"data_offsets":[0,4]}}`)), "not well formed", ErrMalformed},
		{"a number for a tensor", string(framed(`{"a":7}`)), "not well formed", ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := ReadSafetensors(strings.NewReader(tc.file))
			if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestReadIndex(t *testing.T) {
	t.Parallel()
	x, err := ReadIndex(strings.NewReader(`{"metadata":{"total_size":1e3},"weight_map":{"h.0.a":"b-2.safetensors","h.1.a":"b-1.safetensors","h.1.b":"b-1.safetensors","n":"b-2.safetensors"}}`))
	if err != nil || x.TotalSize != 1000 || x.Tensors != 4 || x.Blocks != 2 || strings.Join(x.Shards, " ") != "b-1.safetensors b-2.safetensors" {
		t.Errorf("%+v: %v", x, err)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"no map":           {`{"metadata":{"total_size":1}}`, "weight_map is missing"},
		"negative size":    {`{"metadata":{"total_size":-1},"weight_map":{}}`, "total_size -1"},
		"size in words":    {`{"metadata":{"total_size":"x"},"weight_map":{}}`, "total_size"},
		"map of numbers":   {`{"weight_map":{"a":1}}`, `file of tensor "a"`},
		"list for a map":   {`{"weight_map":[]}`, "want a JSON object"},
		"out of the top":   {`{"weight_map":{"a":"../x.safetensors"}}`, "must be a .safetensors file beside the index"},
		"absolute":         {`{"weight_map":{"a":"/etc/x.safetensors"}}`, "must be a .safetensors file beside the index"},
		"out in the midst": {`{"weight_map":{"a":"b/../../x.safetensors"}}`, "must be a .safetensors file beside the index"},
		"another kind":     {`{"weight_map":{"a":"passwd"}}`, "must be a .safetensors file beside the index"},
		"a zero byte":      {`{"weight_map":{"a":"x\u0000.safetensors"}}`, "must be a .safetensors file beside the index"},
		"no file":          {`{"weight_map":{"a":""}}`, "must be a .safetensors file beside the index"},
		"backslashes":      {`{"weight_map":{"a":"..\\x.safetensors"}}`, "must be a .safetensors file beside the index"},
	} {
		if _, err := ReadIndex(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.want)
		}
	}
	var many strings.Builder
	for i := range MaxShards + 1 {
		fmt.Fprintf(&many, `,"t%d":"y%d.safetensors"`, i, i)
	}
	if _, err := ReadIndex(strings.NewReader(`{"weight_map":{` + many.String()[1:] + "}}")); !errors.Is(err, ErrLimit) {
		t.Errorf("%d files: error %v", MaxShards+1, err)
	}
}

func write(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkpoint writes files into a new directory.
func checkpoint(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "my-model")
	for name, data := range files {
		write(t, dir, name, data)
	}
	return dir
}

const shardMap = `{"metadata":{"total_size":%SIZE%},"weight_map":{"model.embed_tokens.weight":"m-1.safetensors","model.layers.1.mlp.up_proj.weight":"m-2.safetensors"}}`

func TestOpen(t *testing.T) {
	t.Parallel()
	all := tiny()
	files := func(names ...string) map[string][]byte {
		out := make(map[string][]byte)
		for _, n := range names {
			switch n {
			case configFile:
				out[n] = []byte(tinyConfig)
			case weightsFile, "other.safetensors":
				out[n] = tensorFile(t, all...)
			case indexFile:
				out[n] = []byte(strings.ReplaceAll(shardMap, "%SIZE%", strconv.Itoa(2*tinyParams)))
			case "m-1.safetensors":
				out[n] = tensorFile(t, all[:30]...)
			case "m-2.safetensors":
				out[n] = tensorFile(t, all[30:]...)
			case adapterFile:
				out[n] = []byte(`{"r":32,"target_modules":["q_proj","o_proj"],"base_model_name_or_path":"meta-llama/Llama-2-7b-hf"}`)
			case "adapter_model.safetensors":
				out[n] = tensorFile(t, "base_model.model.layers.0.self_attn.q_proj.lora_A.weight", "F32", []int64{32, 256})
			}
		}
		return out
	}
	train := model.Run{Mode: model.Training, Batch: 2, SeqLen: 64, Precision: graph.BF16}
	for _, tc := range []struct {
		name, open string
		files      []string
		params     int64
		partial    bool
		notes      []string // parts of them, in order
	}{
		{"config alone", configFile, []string{configFile}, tinyParams, false, nil},
		{"directory of config and weights", "", []string{configFile, weightsFile}, tinyParams, false, nil},
		{"weights with config beside", weightsFile, []string{configFile, weightsFile}, tinyParams, false, nil},
		{"weights alone: guessed", weightsFile, []string{weightsFile}, tinyParams, true, []string{"guessed from the names"}},
		{"index, config and shards", indexFile, []string{configFile, indexFile, "m-1.safetensors", "m-2.safetensors"}, tinyParams, false, nil},
		{"directory of shards", "", []string{indexFile, "m-1.safetensors", "m-2.safetensors"}, tinyParams, true, []string{"guessed"}},
		{"index without shards", indexFile, []string{indexFile}, tinyParams, true, []string{"2 of 2 files", "only the weights are counted"}},
		{"one shard is missing", indexFile, []string{indexFile, "m-2.safetensors", configFile}, tinyParams, false, []string{"1 of 2 files"}},
		{"a single file of another name", "", []string{configFile, "other.safetensors"}, tinyParams, false, nil},
		{"adapters", "", []string{configFile, adapterFile, "adapter_model.safetensors"}, tinyParams + 2*2*32*512, false, []string{"adapters of rank 32"}},
		{"adapters by their own file", adapterFile, []string{adapterFile, "adapter_model.safetensors"}, 6_738_415_616 + 32*2*32*8192, false, []string{"adapters of rank 32"}},
		{"adapters for a known model", "", []string{adapterFile, "adapter_model.safetensors"}, 6_738_415_616 + 32*2*32*8192, false, []string{"adapters of rank 32"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := checkpoint(t, files(tc.files...))
			m, err := Open(filepath.Join(dir, tc.open))
			if err != nil {
				t.Fatal(err)
			}
			f, notes, err := m.Features(train)
			if err != nil {
				t.Fatal(err)
			}
			if f.Params != tc.params || f.Partial != tc.partial || f.Source == model.SourceNone {
				t.Errorf("%d parameters, partial %t; want %d, %t (%q)", f.Params, f.Partial, tc.params, tc.partial, notes)
			}
			if len(notes) != len(tc.notes) {
				t.Fatalf("notes %q, want %q", notes, tc.notes)
			}
			for i, n := range notes {
				if !strings.Contains(n, tc.notes[i]) {
					t.Errorf("note %q, want one with %q", n, tc.notes[i])
				}
			}
		})
	}
}

func TestAdaptersAlone(t *testing.T) {
	t.Parallel()
	dir := checkpoint(t, map[string][]byte{"adapter_model.safetensors": tensorFile(t, "layers.0.q.lora_A.weight", "F32", []int64{8, 256})})
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Features(model.Run{Batch: 1}); err == nil || !strings.Contains(err.Error(), "adapters alone") {
		t.Errorf("error %v", err)
	}
}

// TestGuessAgreesWithConfig: without config.json, a checkpoint's names tell
// nearly the same.
func TestGuessAgreesWithConfig(t *testing.T) {
	t.Parallel()
	run := model.Run{Mode: model.Training, Batch: 2, SeqLen: 64, Precision: graph.BF16}
	c := parse(t, tinyConfig)
	want := features(t, &c, run)
	w, err := ReadSafetensors(bytes.NewReader(tensorFile(t, tiny()...)))
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := (&Model{Name: "x", Weights: &w}).Features(run)
	if err != nil {
		t.Fatal(err)
	}
	if r := float64(got.SavedBytes) / float64(want.SavedBytes); r < 0.99 || r > 1.01 || got.ParamBytes != want.ParamBytes || got.Blocks != want.Blocks {
		t.Errorf("saved %d bytes, want %d; weights %d, want %d", got.SavedBytes, want.SavedBytes, got.ParamBytes, want.ParamBytes)
	}
}

func TestConfigThatLies(t *testing.T) {
	t.Parallel()
	dir := checkpoint(t, map[string][]byte{configFile: []byte(strings.Replace(tinyConfig, `"num_hidden_layers":2`, `"num_hidden_layers":24`, 1)), weightsFile: tensorFile(t, tiny()...)})
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, notes, err := m.Features(model.Run{Batch: 1, SeqLen: 8})
	if err != nil || !f.Partial || f.Params != tinyParams || f.ParamBytes < 2*tinyParams-2 || f.ParamBytes > 2*tinyParams+2 || len(notes) != 1 || !strings.Contains(notes[0], "counted with the weights") {
		t.Errorf("%d parameters in %d bytes, partial %t, notes %q: %v", f.Params, f.ParamBytes, f.Partial, notes, err)
	}
}

// TestNothingOutside: neither a path nor a link leads out of the directory.
func TestNothingOutside(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	write(t, out, "m-1.safetensors", tensorFile(t, tiny()...))
	write(t, out, configFile, []byte(tinyConfig))
	dir := checkpoint(t, map[string][]byte{indexFile: []byte(`{"weight_map":{"a":"m-1.safetensors","b":"sub/m-1.safetensors"}}`)})
	for from, to := range map[string]string{"m-1.safetensors": filepath.Join(out, "m-1.safetensors"), "sub": out, configFile: filepath.Join(out, configFile)} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if m.Config != nil || m.Weights == nil || m.Weights.Tensors != 0 || !m.Weights.Partial {
		t.Errorf("links were followed: %+v, %+v", m.Config, m.Weights)
	}
	if !strings.Contains(strings.Join(m.Notes, "\n"), "escapes") {
		t.Errorf("notes %q", m.Notes)
	}
	// The one file that the user names may be a link.
	if m, err := Open(filepath.Join(dir, configFile)); err != nil || m.Config == nil {
		t.Errorf("%+v: %v", m, err)
	}
}

// TestCacheOfHuggingFace: a snapshot's files are links to blobs.
func TestCacheOfHuggingFace(t *testing.T) {
	t.Parallel()
	top := filepath.Join(t.TempDir(), "models--acme--anvil")
	write(t, top, "blobs/aa", []byte(tinyConfig))
	write(t, top, "blobs/bb", tensorFile(t, tiny()...))
	snap := filepath.Join(top, "snapshots", "0123abc")
	if err := os.MkdirAll(snap, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, blob := range map[string]string{configFile: "aa", weightsFile: "bb"} {
		if err := os.Symlink(filepath.Join("..", "..", "blobs", blob), filepath.Join(snap, name)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Open(snap)
	if err != nil || m.Config == nil || m.Weights == nil || m.Name != "anvil" || len(m.Notes) != 0 {
		t.Errorf("%+v: %v", m, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := checkpoint(t, map[string][]byte{
		"a.txt": nil, "empty/x": nil, "bad/config.json": []byte("{"), "two/a.safetensors": nil, "two/b.safetensors": nil, "dir/model.safetensors/x": nil,
	})
	for name, want := range map[string]string{
		"a.txt": "want config.json", "empty": "holds neither config.json nor model.safetensors", "bad": "holds neither", "bad/config.json": "not well formed",
		"two": "holds 2 .safetensors files", "missing": "no such file", "dir": "not a regular file",
	} {
		if m, err := Open(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, error %v, want one with %q", name, m, err, want)
		}
	}
}

func FuzzReadSafetensors(f *testing.F) {
	f.Add(tensorFile(f, tiny()...))
	f.Add(tensorFile(f, "h.0.up.weight", "U8", []int64{512, 1}, "h.0.up.weight.absmax", "F32", []int64{16}, "x.lora_A.weight", "F32", []int64{4, 4}))
	f.Add(framed(`{"a":{"dtype":"F32","shape":[1,NaN],"data_offsets":[0,4]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := ReadSafetensors(bytes.NewReader(data))
		if err != nil {
			return
		}
		if w.Params < 0 || w.Bytes < 0 || w.LoRAParams < 0 || w.Params > model.MaxBytes || w.Bytes > model.MaxBytes {
			t.Fatalf("%+v", w)
		}
		checkModel(t, &Model{Weights: &w})
	})
}

func FuzzReadIndex(f *testing.F) {
	f.Add([]byte(shardMap))
	f.Add([]byte(strings.ReplaceAll(shardMap, "%SIZE%", "12")))
	f.Add([]byte(`{"weight_map":{"a":"../x.safetensors"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := ReadIndex(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, s := range x.Shards {
			if !filepath.IsLocal(s) {
				t.Fatalf("shard %q", s)
			}
		}
		w := &Weights{}
		w.fromIndex(&x)
		checkModel(t, &Model{Weights: w})
	})
}

func FuzzParseConfig(f *testing.F) {
	for _, text := range []string{
		tinyConfig,
		`{"model_type":"t5","d_model":512,"d_ff":2048,"d_kv":64,"num_heads":8,"num_layers":6,"vocab_size":32128,"feed_forward_proj":"gated-gelu"}`,
		`{"model_type":"whisper","d_model":768,"encoder_layers":12,"decoder_layers":12,"encoder_attention_heads":12,"decoder_attention_heads":12,"num_mel_bins":80}`,
		`{"model_type":"vit","hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"image_size":[224,224],"patch_size":16,"id2label":{"0":"a"}}`,
		`{"text_config":{"model_type":"mixtral","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_local_experts":8},"torch_dtype":"bfloat16"}`,
		`{"x":[NaN,-Infinity],"model_type":"falcon","n_embd":71,"n_head":71,"n_layer":1,"multi_query":true,"quantization_config":{"bits":4}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(bytes.NewReader(data))
		if err != nil {
			return
		}
		if c.Params() <= 0 {
			t.Fatalf("%d parameters of %+v", c.Params(), c)
		}
		checkModel(t, &Model{Config: &c})
	})
}

// checkModel holds what may always be expected of a model's features.
func checkModel(t *testing.T, m *Model) {
	t.Helper()
	for _, run := range []model.Run{
		{Batch: 1}, {Mode: model.Training, Batch: graph.MaxBatch, SeqLen: graph.MaxBatch, Precision: graph.AMP, Checkpointing: true},
		{Mode: model.Training, Batch: 3, SeqLen: 7, Precision: graph.BF16, LoRARank: 8, WeightBits: 4},
	} {
		f, notes, err := m.Features(run)
		if err != nil {
			continue
		}
		if err := f.Check(); err != nil {
			t.Fatal(err)
		}
		if d, err := model.DecodeFeatures(f.Encode()); err != nil || d != f {
			t.Fatalf("%+v does not survive its encoding: %v", f, err)
		}
		for _, n := range notes {
			if len(n) > 400 {
				t.Fatalf("note of %d bytes", len(n))
			}
		}
	}
}
