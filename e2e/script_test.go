package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A user's script for Slurm runs unchanged: its directives are honoured, it
// sees its SLURM_* variables, writes where its patterns say, and is what it
// was when it was submitted.
func TestBatchScript(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x2xA100-SXM4-80GB")
	dir := scriptDir(t)
	script := filepath.Join(dir, "train.sh")
	write(t, script, `#!/bin/bash
#SBATCH --job-name=train --gres=gpu:a100:1   # one card
#SBATCH -n 1 -c 2 --mem=1G -t 10
#SBATCH -p gpu -o %x-%05j-%N.out
#BERTH --gpu-mem=1G
echo "as $(id -u) in $PWD with $# arguments: $*"
env | grep '^SLURM' | sort
#SBATCH --nodes=9
`)
	link := filepath.Join(dir, "sbatch")
	if err := os.Symlink(appletOf(berth, "sbatch"), link); err != nil {
		t.Fatal(err)
	}
	const uid = 4321
	cmd := exec.Command(link, "-v", "train.sh", "--epochs", "3")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "BERTH_SOCKET="+c.socket, "SLURM_JOB_ID=999")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || string(out) != "Submitted batch job 1\n" {
		t.Fatalf("%q, %v: %s", out, err, stderr.String())
	}
	write(t, script, "#!/bin/sh\necho changed\n") // too late
	for _, want := range []string{"train.sh:4: --partition=gpu: honoured", "warning: partition gpu: this cluster has no partitions", "train.sh:2: --gres=gpu:a100:1: mapped", "train.sh:8: a directive after"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("no %q in %s", want, stderr.String())
		}
	}
	if j := c.await(1, "COMPLETED", "FAILED"); j.State != "COMPLETED" || j.Name != "train" || len(j.GPUs) != 1 || j.GPUs[0].Share.MemMiB != 1024 {
		t.Fatalf("%+v", j)
	}
	got := read(t, filepath.Join(dir, "train-00001-n1.out"))
	for _, want := range []string{
		fmt.Sprintf("as %d in %s with 2 arguments: --epochs 3\n", uid, dir),
		"SLURM_JOB_ID=1\n", "SLURM_JOBID=1\n", "SLURM_JOB_NAME=train\n", "SLURM_SUBMIT_DIR=" + dir + "\n", "SLURM_CPUS_PER_TASK=2\n", "SLURM_NTASKS=1\n",
		"SLURM_JOB_NODELIST=n1\n", "SLURM_JOB_NUM_NODES=1\n", "SLURM_GPUS_ON_NODE=1\n", "SLURM_JOB_GPUS=0\n", "SLURM_MEM_PER_NODE=1024\n",
		"SLURM_CPUS_ON_NODE=2\n", "SLURM_JOB_PARTITION=gpu\n", fmt.Sprintf("SLURM_JOB_UID=%d\n", uid), "SLURM_PROCID=0\n", "SLURM_CLUSTER_NAME=berth\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	// Nothing of the script stays on the node.
	c.eventually("the script's end", func() bool {
		left, err := filepath.Glob(filepath.Join(c.dir, "n1-scripts", "j*"))
		return err == nil && len(left) == 0
	})
}

// The exit code of a script that was waited for, of --wrap, and of what is
// refused.
func TestBatchScriptOutcomes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4")
	dir := scriptDir(t)
	script := filepath.Join(dir, "five.py")
	write(t, script, "#!/usr/bin/env -S sh -e\n#SBATCH -t 5 -o "+dir+"/five.out\necho \"$0\"; exit 5\n")
	if r := c.runAs(0, "submit", "--wait", "--quiet", script); r.code != 5 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if got := strings.TrimSpace(read(t, filepath.Join(dir, "five.out"))); filepath.Base(got) != "slurm_script" {
		t.Errorf("$0 is %s", got)
	}
	if r := c.runAs(0, "submit", "--wait", "-o", dir+"/wrap.out", "--wrap", "echo a; echo $SLURM_JOB_NAME; exit 3"); r.code != 3 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if got := read(t, filepath.Join(dir, "wrap.out")); got != "a\nwrap\n" {
		t.Errorf("%q", got)
	}
	if r := c.runAs(0, "submit", "-N", "2", script); r.code != 2 || !strings.Contains(r.stderr, "never satisfiable: 2 nodes at once") || r.stdout != "" {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	write(t, script, "#!/no/such/shell\n")
	if r := c.runAs(0, "submit", "--wait", "-o", dir+"/none.out", script); r.code != 127 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

// scriptDir is a directory that every user may write to.
func scriptDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "be2e-scripts-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
