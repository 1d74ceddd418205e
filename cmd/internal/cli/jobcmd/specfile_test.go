package jobcmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
)

const goodSpec = `# a whole job
name: train
command: [python, train.py, --epochs, "3"]
env:
  OMP_NUM_THREADS: "4"
gpus: 2
gpu_mem: 12G
gpu_util: 60%
time: 1:30:00
expect: 1h
mem: 16384
cpus: 2.5
exclusive: false
requeue_on_loss: true
output: logs/%x-%j.out
export: PATH
comment: "yes"
`

func TestSpecFile(t *testing.T) {
	t.Parallel()
	want := cluster.Spec{
		Name: "train", Command: []string{"python", "train.py", "--epochs", "3"}, Env: []string{"PATH=/usr/bin", "OMP_NUM_THREADS=4"},
		Dir: "/home/ann/run", GPUs: 2, GPUMemMiB: 12288, GPUMilli: 600, TimeLimit: 90 * time.Minute, Duration: time.Hour,
		MemMiB: 16384, CPUMilli: 2500, RequeueOnLoss: true, Stdout: "logs/%x-%j.out", Comment: "yes",
	}
	for name, text := range map[string]string{
		"plain": goodSpec, "BOM": "\ufeff" + goodSpec, "CRLF": strings.ReplaceAll(goodSpec, "\n", "\r\n"),
		"document marks": "---\n" + goodSpec + "...\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Env.Start()
			w.Env.Stdin = strings.NewReader(text)
			var a jobspec.SpecArgs
			a.File = "-"
			if err := a.Read(w.Env, nil, -1); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, a.Spec); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestFlagsWinOverFile(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	f := clitest.NewFake()
	w.Serve("/a", f)
	name := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(name, []byte(goodSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := w.Run("submit", "-G", "1", name, "--name", "other", "--", "echo", "hi"); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.Errs.String())
	}
	s := f.Requests[0].GetJobs()[0]
	if s.GetGpus() != 1 || s.GetName() != "other" || s.GetGpuMemMib() != 12288 || strings.Join(view.Texts(s.GetCommand()), " ") != "echo hi" {
		t.Errorf("got %v", s)
	}
}

// badSpecs are files with the message that each must bring.
var badSpecs = map[string]struct{ text, want string }{
	"empty":           {"", "1:1: is empty"},
	"only comments":   {"# nothing\n", "1:1: is empty"},
	"null":            {"~\n", "1:1: must have keys and values"},
	"list":            {"- a\n", "1:1: must have keys and values"},
	"tabs":            {"env:\n\tA: b\n", "is not well-formed YAML"},
	"UTF-16":          {"\xff\xfen\x00a\x00", "1:1: is not UTF-8 text"},
	"Latin-1":         {"name: caf\xe9\n", "1:1: is not UTF-8 text"},
	"NUL":             {"name: a\x00b\n", "1:1: is not UTF-8 text"},
	"duplicate":       {"gpus: 1\nname: a\ngpus: 2\n", `3:1: key "gpus" appears twice, first in line 1`},
	"gpu for gpus":    {"name: a\ngpu: 1\n", `2:1: unknown key "gpu"; did you mean "gpus"?`},
	"user":            {"user: root\n", `1:1: unknown key "user"`},
	"flag's spelling": {"gpu-mem: 1G\n", `did you mean "gpu_mem"?`},
	"name no":         {"name: no\n", `1:7: name: "no" could be read as something other than text; put it in quotes`},
	"name on":         {"name: On\n", "put it in quotes"},
	"name 0777":       {"name: 0777\n", "put it in quotes"},
	"name .inf":       {"name: .inf\n", "put it in quotes"},
	"name date":       {"name: 2026-01-02\n", "put it in quotes"},
	"env number":      {"env:\n  A: 4\n", `2:6: env: A: "4" could be read as something other than text`},
	"env list":        {"env: [A=b]\n", "env: want names and values"},
	"env name":        {"env: {'A=B': c}\n", "may not be empty or hold '='"},
	"env twice":       {"env: {A: b, A: c}\n", `key "A" appears twice`},
	"gpus 1_000":      {"gpus: 1_000\n", `1:7: gpus: number of GPUs "1_000": want`},
	"gpus .nan":       {"gpus: .nan\n", "want a whole number from 1 to 16"},
	"gpus list":       {"gpus: [1]\n", "1:7: gpus: want one value"},
	"gpus missing":    {"gpus:\nname: a\n", "gpus: the value is missing"},
	"bool yes":        {"exclusive: yes\n", `exclusive: "yes": want true or false`},
	"bool quoted":     {"exclusive: \"true\"\n", "want true or false"},
	"mem 16gx":        {"mem: 16gx\n", `1:6: mem: memory "16gx": want MiB`},
	"command text":    {"command: python train.py\n", "command: want a list"},
	"command number":  {"command: [sleep, 5]\n", `command[1]: "5" could be read as something other`},
	"two documents":   {"name: a\n---\nname: b\n", "holds more than one document"},
	"trailing":        {"{\"name\": \"a\"} x\n", "is not well-formed YAML"},
	"anchor":          {"name: &a x\ncomment: *a\n", "1:7: anchors and aliases"},
	"merge":           {"<<: {name: a}\n", "want a word"},
	"tag":             {"name: !!str 5\n", "tags (!) are not allowed"},
	"nested":          {"env: {A: {B: {C: {D: {E: f}}}}}\n", "nested too deeply"},
	"deep":            {strings.Repeat("[", 20000), "1:"},
	"laughs":          {"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n", "anchors and aliases"},
	"key list":        {"[a]: b\n", "want a word"},
	"JSON 2^63":       {`{"gpus": 9223372036854775808}`, "want a whole number from 1 to 16"},
	"lone surrogate":  {`{"name": "\ud800"}`, "1:"},
}

func TestBadSpecFiles(t *testing.T) {
	t.Parallel()
	for name, tc := range badSpecs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			f := clitest.NewFake()
			w.Serve("/a", f)
			path := filepath.Join(t.TempDir(), "job.yaml")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			code := w.Run("submit", path, "--", "true")
			if code != console.ExitUsage || !strings.Contains(w.Errs.String(), tc.want) || len(f.Requests) > 0 {
				t.Errorf("exit code %d, %d requests, want 2, none and %q:\n%s", code, len(f.Requests), tc.want, w.Errs.String())
			}
		})
	}
}

func TestSpecFileBounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, []byte("comment: "+strings.Repeat("x", jobspec.MaxSpecBytes)), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo.yaml")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{big: "larger than the limit of 64 KiB", fifo: "not a regular file"} {
		w := clitest.NewWorld(t)
		w.Serve("/a", clitest.NewFake())
		if code := w.Run("submit", path); code != console.ExitUsage || !strings.Contains(w.Errs.String(), want) {
			t.Errorf("exit code %d, want 2 and %q: %s", code, want, w.Errs.String())
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add([]byte(goodSpec))
	for _, tc := range badSpecs {
		f.Add([]byte(tc.text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > jobspec.MaxSpecBytes {
			return
		}
		var r jobspec.Request
		command, err := jobspec.ParseSpec(&r, raw)
		if err != nil {
			if command != nil && strings.TrimSpace(err.Error()) == "" {
				t.Errorf("an error without words")
			}
			return
		}
		if r.Spec.GPUs < 0 || r.Spec.GPUs > cluster.MaxGPUsPerJob || r.Spec.MemMiB < 0 || r.Spec.TimeLimit < 0 || r.Spec.CPUMilli < 0 {
			t.Errorf("out of range: %+v", r.Spec)
		}
	})
}

func FuzzParseIDs(f *testing.F) {
	for _, s := range []string{"1", "1-5", "3..9", "1,2,4-6", "-1", "1-", "..", "18446744073709551615", "1-4611686018427387904"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids, err := console.ParseIDs([]string{s})
		if err == nil && (len(ids) == 0 || len(ids) > console.MaxIDs) {
			t.Errorf("%q gave %d ids", s, len(ids))
		}
		if err == nil {
			if back, err := console.ParseIDs([]string{console.IDRanges(ids)}); err != nil || len(back) != len(ids) {
				t.Errorf("%v written as %q is not read back: %v", ids, console.IDRanges(ids), err)
			}
		}
	})
}
