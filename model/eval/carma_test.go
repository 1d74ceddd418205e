package eval

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/model/graph"
)

// TestTablesByName: jobs are called by scripts, versions and repetitions of
// what their layer tables are called.
func TestTablesByName(t *testing.T) {
	b := &builder{tables: map[string]*layerTable{}}
	for _, name := range []string{"BERT_base.model", "resnet18_cifar100.model", "efficientnet_32.model", "efficientnet_64.model", "vgg_64.model", "gpt2_large.model", "xlnet_base_cased.model"} {
		b.tables[jobName(name)] = &layerTable{params: int64(len(b.tables) + 1)}
	}
	for _, tc := range []struct {
		job   string
		batch int64
		want  string // "" for none
	}{
		{"BERT_base", 0, "bertbase"},
		{"BERT_base_on_wiki.py", 0, "bertbase"},
		{"bert-base-cased", 0, "bertbase"},
		{"workloads/resnet18_cifar100_20e_1.rad", 0, "resnet18cifar100"},
		{"efficientnet_64", 0, "efficientnet64"},
		{"efficientNet", 64, "efficientnet64"},
		{"efficientnet_b0", 32, "efficientnet32"},
		{"efficientnet", 0, ""}, // which of the two?
		{"vgg16", 64, "vgg64"},
		{"gpt2_large_2", 0, "gpt2large"},
		{"xlnet_base", 8, "xlnetbasecased"},
		{"unheard", 8, ""},
		{"", 0, ""},
		{"_", 64, ""},
	} {
		got, _ := b.tableOf(tc.job, tc.batch)
		if got != b.tables[tc.want] {
			t.Errorf("%q at batch %d: table %+v, want that of %q", tc.job, tc.batch, got, tc.want)
		}
	}
}

func TestCarmaRun(t *testing.T) {
	for _, tc := range []struct {
		job, head, cells string
		batch, seq       int64
		opt              string
	}{
		{"resnet50_64", "x", "", 64, 0, "adam"},
		{"resnet50_64", "batch,gpus", "128,2", 64, 0, "adam"}, // the line wins; two GPUs share it
		{"gpt2_large_2", "x", "", 0, 512, "adamw"},
		{"gpt2_large", "batch size,seq len", "8,256", 8, 256, "adamw"},
		{"resnet18_cifar100_20e_1", "x", "", 0, 0, "adamw"},
		{"maskrcnn", "x", "", 0, 0, "sgd"},
	} {
		tab, err := parseTable("x", strings.NewReader(tc.head+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		run := carmaRun(tc.job, line{tab, strings.Split(tc.cells, ",")})
		if run.Batch != tc.batch || run.SeqLen != tc.seq || string(run.Optimizer) != tc.opt || run.Precision != graph.FP32 {
			t.Errorf("%s %s: %+v", tc.job, tc.cells, run)
		}
	}
}

func TestLitGPTLines(t *testing.T) {
	const head = ",Size,Dataset,Epochs,Val loss,Peak memory,Max seq length,Micro batch size,Precision,Training runtime\n"
	for name, tc := range map[string]struct {
		text string
		want string // model, rank, bits, batch
		mib  float64
	}{
		"empty head":    {head + "falcon-7b/lora.yaml,7B,Alpaca 2k,4,0.9,10 GB,512,1,bfloat16,20 min (1xA10G)\n", "falcon-7b", 1e10 / mib},
		"four GPUs":     {head + "tiny-llama/full.yaml,1.1B,Alpaca 2k,1,1.0,10 GB,512,4,bfloat16,2 min (4xA10G)\n", "", 0},
		"full, one GPU": {head + "tiny-llama/full.yaml,1.1B,Alpaca 2k,1,1.0,10 GB,512,4,bfloat16,2 min (1xA10G)\n", "tinyllama-1.1b", 1e10 / mib},
		"plain number":  {"name,model,peak_memory,max_seq_length,micro_batch_size\nx/qlora,llama-2-7b,14.5,512,2\n", "llama-2-7b", 14.5e9 / mib},
		"MiB":           {"name,model,peak_memory_mib,max_seq_length,micro_batch_size\nx/qlora,llama-2-7b,14500,512,2\n", "llama-2-7b", 14500},
	} {
		t.Run(name, func(t *testing.T) {
			tab, err := parseTable("a10g_finetune", strings.NewReader(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			b := &builder{file: tab.file, sets: map[setKey]*Set{}}
			if err := readLitGPT(b, tab); err != nil {
				t.Fatal(err)
			}
			s := b.set("litgpt", Memory)
			if tc.want == "" {
				if len(s.Rows) != 0 {
					t.Errorf("rows %+v", s.Rows)
				}
				return
			}
			if len(s.Rows) != 1 {
				t.Fatalf("%d rows; left out: %s", len(s.Rows), s.SkippedText())
			}
			r := s.Rows[0]
			f := r.Sample.Features
			if d := r.actual(Memory) - tc.mib; r.Model != tc.want || r.GPU != "A10G" || d < -1 || d > 1 {
				t.Errorf("%s on %s: %.0f MiB, want %s, %.0f", r.Model, r.GPU, r.actual(Memory), tc.want, tc.mib)
			}
			if lora := strings.Contains(tc.text, "lora"); (f.LoRARank == 32) != lora || (f.WeightBits == 4) != strings.Contains(tc.text, "qlora") {
				t.Errorf("run %+v", f.Run)
			}
		})
	}
}
