package modelcmd_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	"github.com/berth-scheduler/berth/model"
)

// TestFeaturesOfTransformers holds what is shown of a config.json, of a
// checkpoint's directory and of the catalogue.
func TestFeaturesOfTransformers(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"features-config":    {"features", "testdata/tiny-llama/config.json", "--batch", "4", "--seq-len", "1024", "--optimizer", "adamw", "--lora-rank", "8"},
		"features-directory": {"features", "testdata/tiny-llama", "--batch", "4", "--optimizer", "adamw", "--checkpointing", "--framework", "pytorch"},
		"features-model":     {"features", "--model", "meta-llama/Llama-2-7b-chat-hf", "--batch", "1", "--seq-len", "512", "--inference", "--weight-bits", "4", "-o", "json"},
	} {
		w := clitest.NewWorld(t)
		golden.Check(t, name, strings.ReplaceAll(w.Transcript(args...), "testdata/", ""))
	}
}

func submitted(t *testing.T, args ...string) (model.Features, string) {
	t.Helper()
	w := clitest.NewWorld(t)
	f := clitest.NewFake()
	w.Serve("/a", f)
	if code := w.Run(append(append([]string{"submit"}, args...), "--", "true")...); code != 0 || len(f.Requests) != 1 {
		t.Fatalf("%q: exit code %d: %s", args, code, w.Errs.String())
	}
	ft, err := model.DecodeFeatures(f.Requests[0].GetJobs()[0].GetFeatures())
	if err != nil {
		t.Fatal(err)
	}
	return ft, w.Errs.String()
}

// TestModelFlagsReachTheFeatures: each flag does what it says.
func TestModelFlagsReachTheFeatures(t *testing.T) {
	t.Parallel()
	config := []string{"--config", "testdata/tiny-llama/config.json", "--batch", "2", "--seq-len", "256"}
	base, warned := submitted(t, config...)
	if base.Params != 1_100_048_384 || base.Source != model.SourceGraph || base.Precision != "bf16" || warned != "" {
		t.Errorf("%+v, %q", base, warned)
	}
	lora, _ := submitted(t, append(config, "--lora-rank", "16")...)
	if lora.LoRARank != 16 || lora.TrainedBytes == 0 || lora.SavedBytes >= base.SavedBytes {
		t.Errorf("adapters: %+v", lora)
	}
	narrow, _ := submitted(t, append(config, "--lora-rank", "16", "--weight-bits", "4")...)
	if narrow.WeightBits != 4 || narrow.ParamBytes >= lora.ParamBytes/2 {
		t.Errorf("four bits: %+v", narrow)
	}
	again, _ := submitted(t, append(config, "--checkpointing", "--framework", "jax")...)
	if !again.Checkpointing || again.SavedBytes >= base.SavedBytes || again.Framework != "jax" {
		t.Errorf("checkpointing: %+v", again)
	}
	if f, warned := submitted(t, "--model", "phi-1.5", "--batch", "1", "--seq-len", "100"); f.Source != model.SourceCatalogue || f.Params != 1_418_270_720 || warned != "" {
		t.Errorf("catalogue of language models: %+v, %q", f, warned)
	}
	if f, _ := submitted(t, "--model", "gpt2", "--batch", "1", "--lora-rank", "4"); f.TrainedBytes == 0 {
		t.Errorf("a name in both catalogues, with adapters: %+v", f)
	}
	if f, _ := submitted(t, "--framework", "pytorch"); f.Framework != "pytorch" || f.Source != model.SourceNone {
		t.Errorf("without a model: %+v", f)
	}
}

// weightsFile is a safetensors file with one tensor, without its data.
func weightsFile(t *testing.T) []byte {
	t.Helper()
	const head = `{"layers.0.w":{"dtype":"F16","shape":[1000,1000],"data_offsets":[0,2000000]}}`
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
}

// TestOddModelsOnlyWarn: a model that lies or cannot be read never keeps a job
// from running; the warning says what is wrong in one line.
func TestOddModelsOnlyWarn(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile("testdata/tiny-llama/config.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"bad/config.json": []byte(`{"hidden_size":`), "huge/config.json": []byte(strings.Replace(string(config), "22", "1000000000", 1)),
		"weird/config.json": []byte(strings.Replace(string(config), `"llama"`, `"mystery"`, 1)),
		"lie/config.json":   config, "lie/model.safetensors": weightsFile(t), "weights/model.safetensors": weightsFile(t),
		"pickle/model.safetensors": []byte("\x80\x02}q\x00(X\x05\x00\x00\x00hello"), "plain/config.json": config, "resnet.onnx": []byte("no graph"),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no JSON", []string{"--config", "bad/config.json"}, "the job's needs are predicted without its model"},
		{"too many layers", []string{"--config", "huge/config.json"}, "layers 1000000000: must be 1 to 10000; the job's needs are predicted without its model"},
		{"a pickle", []string{"--config", "pickle/model.safetensors"}, "the job's needs are predicted without its model"},
		{"unknown type", []string{"--config", "weird"}, "model type mystery is not known; its layers are counted as Llama's"},
		{"weights of another model", []string{"--config", "lie"}, "the weights hold 1000000 parameters, but by its configuration the model has 1100048384"},
		{"weights alone", []string{"--config", "weights/model.safetensors"}, "only the weights are counted, so the prediction is too low"},
		{"too long a sequence", []string{"--config", "plain", "--seq-len", "4096"}, "a sequence length of 4096 is more than the model's 2048 positions"},
		{"no sequence length", []string{"--config", "plain"}, "the sequence length is missing; counted with 2048"},
		{"four bits that train", []string{"--config", "plain", "--seq-len", "8", "--weight-bits", "4"}, "weights of 4 bits do not train without adapters"},
		{"adapters of an image model", []string{"--model", "resnet50", "--lora-rank", "4"}, "--lora-rank: not taken into account for this model"},
		{"an ONNX file for a configuration", []string{"--config", "resnet.onnx"}, "want config.json, a .safetensors file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--batch", "2"}, tc.args...)
			if !strings.Contains(tc.name, "sequence") {
				args = append(args, "--seq-len", "8")
			}
			if tc.args[0] == "--config" {
				args[3] = filepath.Join(dir, tc.args[1])
			}
			_, warned := submitted(t, args...)
			if strings.Count(warned, "\n") != 1 || !strings.HasPrefix(warned, "berth: warning: --") || !strings.Contains(warned, tc.want) {
				t.Errorf("warned %q, want one line with %q", warned, tc.want)
			}
		})
	}
}

// TestBadModelFlags holds the words of refusals.
func TestBadModelFlags(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, args := range [][]string{
		{"submit", "--config", "/nonexistent/config.json", "--", "true"},
		{"submit", "--config", "a", "--model", "gpt2", "--", "true"},
		{"submit", "--config", "a", "--onnx", "b", "--", "true"},
		{"submit", "--model", "llama-2-8b", "--", "true"},
		{"submit", "--lora-rank", "0", "--", "true"},
		{"submit", "--lora-rank", "65537", "--", "true"},
		{"submit", "--weight-bits", "5", "--", "true"},
		{"submit", "--framework", "caffe", "--", "true"},
		{"submit", "--checkpointing=perhaps", "--", "true"},
		{"features"},
		{"features", "a", "b"},
		{"features", "a", "--model", "gpt2"},
		{"features", "--model", "llama-2-8b"},
		{"features", "/nonexistent/config.json"},
	} {
		w := clitest.NewWorld(t)
		w.Serve("/a", clitest.NewFake())
		got := w.Transcript(args...)
		if strings.HasSuffix(got, "-- exit code 0\n") || w.Out.Len() > 0 {
			t.Errorf("%q was accepted:\n%s", args, got)
		}
		all.WriteString(got + "\n")
	}
	golden.Check(t, "bad-model", all.String())
}

// TestModelInSpecFile: the flags' names work in a spec file, with _ for -.
func TestModelInSpecFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "job.yaml")
	const spec = "config: testdata/tiny-llama\nbatch: 2\nseq_len: 64\nlora_rank: 8\nweight_bits: 4\ncheckpointing: true\nframework: pytorch\n"
	if err := os.WriteFile(name, []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	f, warned := submitted(t, "--spec", name)
	if f.Model != "tiny-llama" || f.LoRARank != 8 || f.WeightBits != 4 || !f.Checkpointing || f.Framework != "pytorch" || f.SeqLen != 64 || warned != "" {
		t.Errorf("%+v, %q", f, warned)
	}
}
