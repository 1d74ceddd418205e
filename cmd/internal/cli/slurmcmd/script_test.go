package slurmcmd_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// scriptJob runs a command that must submit one job, and returns it.
func scriptJob(t *testing.T, w *clitest.World, args ...string) *apiv1.JobSpec {
	t.Helper()
	f := clitest.NewFake()
	w.Serve("/a", f)
	if code := w.Run(args...); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.Errs.String())
	}
	if len(f.Requests) != 1 || len(f.Requests[0].GetJobs()) != 1 {
		t.Fatalf("requests: %v", f.Requests)
	}
	return f.Requests[0].GetJobs()[0]
}

func envOf(j *apiv1.JobSpec) []string {
	var out []string
	for _, line := range j.GetEnv() {
		out = append(out, string(line))
	}
	return out
}

func TestScriptTravels(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	j := scriptJob(t, w, "submit", "--quiet", "testdata/scripts/train.sh", "--epochs", "3", "-x")
	file, err := os.ReadFile("testdata/scripts/train.sh")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := plainconv.UnpackScript(j.GetScript()); err != nil || string(text) != string(file) {
		t.Errorf("script %q, %v", text, err)
	}
	var command []string
	for _, a := range j.GetCommand() {
		command = append(command, string(a))
	}
	if d := cmp.Diff([]string{"/home/ann/run/testdata/scripts/train.sh", "--epochs", "3", "-x"}, command); d != "" {
		t.Error(d)
	}
	if w.Errs.Len() > 0 {
		t.Errorf("--quiet, but: %s", w.Errs.String())
	}
	want := []string{
		"PATH=/usr/bin", "HOME=/home/ann", "SLURM_TASKS_PER_NODE=2", "SLURM_NTASKS=2", "SLURM_NPROCS=2", "SLURM_CPUS_PER_TASK=4",
		"SLURM_MEM_PER_CPU=2048", "SLURM_JOB_PARTITION=gpu", "SLURM_SUBMIT_DIR=/home/ann/run", "SLURM_SUBMIT_HOST=login", "SLURM_CLUSTER_NAME=berth",
	}
	if d := cmp.Diff(want, envOf(j)); d != "" {
		t.Error(d)
	}
	got := []any{j.GetName(), j.GetGpus(), j.GetGpuType(), j.GetGpuMemMib(), j.GetCpuMilli(), j.GetMemMib(), j.GetTimeLimit().AsDuration(), string(j.GetStdout())}
	if d := cmp.Diff([]any{"train", uint32(1), "A100-SXM4-80GB", int64(12 << 10), int64(8000), int64(16 << 10), 36 * time.Hour, "logs/%x-%j.out"}, got); d != "" {
		t.Error(d)
	}
}

// TestScriptPrecedence: directives, then the environment as sbatch has it,
// then #BERTH, then the command line.
func TestScriptPrecedence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "job.sh")
	body := "#!/bin/sh\n#SBATCH -J line -t 10 --mem=1G -c 1 -p a\n#BERTH --mem=3G --cpus=3\ntrue\n"
	if err := os.WriteFile(script, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	w := clitest.NewWorld(t)
	w.Env.Environ = func() []string {
		return []string{"SBATCH_JOB_NAME=env", "SBATCH_TIMELIMIT=20", "SBATCH_MEM_PER_NODE=2G", "SBATCH_PARTITION=b"}
	}
	j := scriptJob(t, w, "submit", "--cpus", "4", "-p", "c", script)
	if d := cmp.Diff([]any{"env", 20 * time.Minute, int64(3 << 10), int64(4000)}, []any{j.GetName(), j.GetTimeLimit().AsDuration(), j.GetMemMib(), j.GetCpuMilli()}); d != "" {
		t.Error(d)
	}
	if !slices.Contains(envOf(j), "SLURM_JOB_PARTITION=c") {
		t.Errorf("environment %q", envOf(j))
	}
	for _, want := range []string{
		"job.sh:2: --job-name=line: overridden: by --job-name, $SBATCH_JOB_NAME\n", "job.sh:2: --mem=1G: overridden: by --mem, $SBATCH_MEM_PER_NODE\n",
		"$SBATCH_MEM_PER_NODE: --mem=2G: overridden: by --mem, line 3\n", "job.sh:3: --cpus=3: overridden: by --cpus, command line\n",
	} {
		if !strings.Contains(w.Errs.String(), want) {
			t.Errorf("no %q in\n%s", want, w.Errs.String())
		}
	}
}

func TestScriptDefaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		job    string
		stdout string
		script string
	}{
		"script":         {[]string{"submit", "testdata/scripts/sub/other.sh"}, "other.sh", "slurm-%j.out", "#!/bin/sh\necho no directives\n"},
		"wrap":           {[]string{"submit", "--wrap", "make -j8"}, "wrap", "slurm-%j.out", "#!/bin/sh\n# This script was created by sbatch --wrap.\n\nmake -j8\n"},
		"sbatch":         {[]string{"sbatch", "-Q", "testdata/scripts/sub/other.sh"}, "other.sh", "slurm-%j.out", "#!/bin/sh\necho no directives\n"},
		"sbatch options": {[]string{"sbatch", "-Qox.out", "-Jn", "testdata/scripts/sub/other.sh", "-J", "args"}, "n", "x.out", "#!/bin/sh\necho no directives\n"},
		"command":        {[]string{"submit", "--", "true"}, "true", "berth-%j.out", ""},
		"array":          {[]string{"submit", "--array", "0-9", "--", "true"}, "true", "berth-%A_%a.out", ""},
		"named output":   {[]string{"submit", "--array", "0-9", "-o", "x-%j.out", "--", "true"}, "true", "x-%j.out", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := scriptJob(t, clitest.NewWorld(t), c.args...)
			script := ""
			if len(j.GetScript()) > 0 {
				text, err := plainconv.UnpackScript(j.GetScript())
				if err != nil {
					t.Fatal(err)
				}
				script = string(text)
			}
			if d := cmp.Diff([]string{c.job, c.stdout, c.script}, []string{j.GetName(), string(j.GetStdout()), script}); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestSbatchTakesOwnOptions: what only Berth knows is honoured on sbatch's command
// line too, and wins over the script's lines.
func TestSbatchTakesOwnOptions(t *testing.T) {
	t.Parallel()
	own := []string{"sbatch", "-Q", "--gpu-mem=20G", "--image", "registry.lan/torch:2", "--mount=/data:/data:ro", "--mount=/scratch:/tmp/s", "--read-only", "--requeue-on-loss=false"}
	for name, last := range map[string]string{"script": "testdata/scripts/train.sh", "wrap": "--wrap=nvidia-smi"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := scriptJob(t, clitest.NewWorld(t), append(slices.Clone(own), last)...)
			got := []any{j.GetGpuMemMib(), j.GetGpus(), j.GetImage(), jobspec.MountTexts(j), j.GetContainer().GetReadOnly(), j.GetRequeueOnLoss()}
			if d := cmp.Diff([]any{int64(20 << 10), uint32(1), "registry.lan/torch:2", []string{"/data:/data:ro", "/scratch:/tmp/s"}, true, false}, got); d != "" {
				t.Error(d)
			}
		})
	}
	w := clitest.NewWorld(t)
	w.Serve("/a", clitest.NewFake())
	if code := w.Run("sbatch", "--gpu-mem=much", "--wrap=true"); code != 1 || !strings.Contains(w.Errs.String(), "--gpu-mem") {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
}

func TestScriptFromStandardInput(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	w.Env.Stdin = strings.NewReader("#!/bin/sh\n#SBATCH --gpus=2\ntrue\n")
	if j := scriptJob(t, w, "sbatch"); j.GetGpus() != 2 || j.GetName() != "sbatch" {
		t.Errorf("%v", j)
	}
}

// TestScriptGolden holds what is said of scripts, word for word.
func TestScriptGolden(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"script-submit":          {"submit", "testdata/scripts/train.sh"},
		"script-strict":          {"submit", "--strict", "testdata/scripts/train.sh"},
		"script-refused":         {"submit", "--quiet", "testdata/scripts/sub/array.sh"},
		"script-bad-flag":        {"submit", "testdata/scripts/sub/bad-flag.sh"},
		"script-dos":             {"submit", "testdata/scripts/sub/dos.sh"},
		"script-missing":         {"submit", "testdata/scripts/none.sh", "x"},
		"script-other-type":      {"submit", "--quiet", "--gpu-type", "H100", "testdata/scripts/train.sh"},
		"script-test-only":       {"submit", "--test-only", "testdata/scripts/train.sh"},
		"script-slurm-options":   {"submit", "--nice", "--begin", "16:00", "-A", "lab", "--", "true"},
		"sbatch-submit":          {"sbatch", "--parsable", "testdata/scripts/train.sh"},
		"sbatch-refused":         {"sbatch", "-N2", "testdata/scripts/train.sh"},
		"sbatch-no-such-file":    {"sbatch", "testdata/scripts/none.sh"},
		"sbatch-unknown-option":  {"sbatch", "--gpu-memory=3", "x.sh"},
		"sbatch-ambiguous":       {"sbatch", "--gpu=3", "x.sh"},
		"sbatch-wrap-and-script": {"sbatch", "--wrap=ls", "x.sh"},
		"sbatch-dos":             {"sbatch", "testdata/scripts/sub/dos.sh"},
		"sbatch-empty":           {"sbatch"},
		"sbatch-unknown-type":    {"sbatch", "-Q", "--gres=gpu:b300:1", "--wrap=ls"},
		"sbatch-help":            {"sbatch", "--help"},
		"lint":                   {"lint", "testdata/scripts"},
		"lint-all":               {"lint", "--all", "testdata/scripts/train.sh"},
		"lint-strict":            {"lint", "--strict", "testdata/scripts/train.sh"},
		"lint-good":              {"lint", "testdata/scripts/sub/plain.sh"},
		"lint-json":              {"lint", "-o", "json", "testdata/scripts/sub/array.sh", "testdata/scripts/sub/plain.sh"},
		"lint-name":              {"lint", "-o", "name", "testdata/scripts"},
		"lint-missing":           {"lint", "testdata/nothing"},
		"lint-nothing":           {"lint"},
		"help-lint":              {"lint", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Serve("/a", clitest.NewFake())
			golden.Check(t, name, w.Transcript(args...))
		})
	}
}

func TestScriptTooLarge(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "large.sh")
	if err := os.WriteFile(script, append([]byte("#!/bin/sh\n"), make([]byte, cluster.MaxScript)...), 0o600); err != nil {
		t.Fatal(err)
	}
	w := clitest.NewWorld(t)
	f := clitest.NewFake()
	w.Serve("/a", f)
	if code := w.Run("submit", script); code != console.ExitUsage || len(f.Requests) > 0 || !strings.Contains(w.Errs.String(), "at most 4194304") {
		t.Errorf("exit code %d, %d requests: %s", code, len(f.Requests), w.Errs.String())
	}
	if code := w.Run("lint", script); code != console.ExitFailed || !strings.Contains(w.Out.String(), "larger than 4194304") {
		t.Errorf("lint: exit code %d: %s", code, w.Out.String())
	}
}

func TestApplet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ argv, want []string }{
		{[]string{"/usr/bin/berth", "queue"}, []string{"queue"}},
		{[]string{"/usr/local/bin/sbatch", "-n", "1", "x.sh"}, []string{"sbatch", "-n", "1", "x.sh"}},
		{[]string{"sbatch"}, []string{"sbatch"}},
		{[]string{"sbatch.real"}, []string{}},
		{nil, nil},
	} {
		if d := cmp.Diff(c.want, slurmcmd.Applet(c.argv)); d != "" {
			t.Errorf("%q: %s", c.argv, d)
		}
	}
}

func TestTypeMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ, asked string
		want       bool
	}{
		{"A100-SXM4-80GB", "a100", true}, {"A100-SXM4-80GB", "a100_80gb", true}, {"A100-SXM4-80GB", "a100-sxm4-80gb", true},
		{"A1000", "a100", false}, {"A100-PCIE-40GB", "a100_80gb", false}, {"T4", "tesla", false}, {"T4", "-", false},
	} {
		if got := client.TypeMatches(c.typ, c.asked); got != c.want {
			t.Errorf("%s for %s: %t", c.typ, c.asked, got)
		}
	}
}

// TestNoScript: a program that somebody takes for a batch script is told of the way to
// run it; sbatch itself has Slurm's words for it.
func TestNoScript(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(file, []byte("import torch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := clitest.NewWorld(t)
	w.Serve("/a", clitest.NewFake())
	if code, want := w.Run("submit", file), "after --, such as: -- python "+file+"\n"; code != 2 || !strings.HasSuffix(w.Errs.String(), want) {
		t.Errorf("exit code %d: %s; want %s", code, w.Errs.String(), want)
	}
	w.Errs.Reset()
	if code := w.Run("sbatch", file); code != 1 || !strings.Contains(w.Errs.String(), "does not look like a batch script") || strings.Contains(w.Errs.String(), "python") {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
}
