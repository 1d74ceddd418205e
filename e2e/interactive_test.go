package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stepsScript has the lines that scripts written for Slurm have.
const stepsScript = `#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --gpus-per-node=1
export FOO=bar
srun -l bash -c 'echo $SLURMD_NODENAME $SLURM_NODEID $SLURM_LOCALID/$SLURM_PROCID $FOO $SLURM_GTIDS $SLURM_STEP_ID $SLURM_STEP_NUM_TASKS $PWD'
srun -N1 -n1 -w $(scontrol show hostnames $SLURM_JOB_NODELIST | tail -1) bash -c 'echo on $SLURMD_NODENAME'
srun -N3 true; echo rc $?
srun bash -c 'exit $SLURM_PROCID'; echo rc $?
srun -n1 bash -c 'kill -9 $$'; echo rc $?
srun -n1 nosuch; echo rc $?
printf 'a\nb\n' | srun -l -n2 cat
squeue -h -o '%A %D %T'
echo $SLURM_NTASKS $SLURM_TASKS_PER_NODE $SLURM_JOB_PARTITION
exit 4
`

// TestStepsOfABatchScript: srun runs its tasks on all nodes of the job, with
// the words and codes of Slurm 22.05.8.
func TestStepsOfABatchScript(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "2x2xT4")
	dir := openDir(t)
	write(t, filepath.Join(dir, "st.sh"), stepsScript)
	r := c.runAs(alice, "sbatch", "-Q", "-W", "-D", dir, "-o", dir+"/out", "-e", dir+"/err", filepath.Join(dir, "st.sh"))
	if r.code != 4 {
		t.Errorf("the job ended with %d: %s", r.code, r.stderr)
	}
	out := strings.Split(read(t, dir+"/out"), "\n")
	has := func(lines []string, want string) {
		t.Helper()
		for _, l := range lines {
			if l == want {
				return
			}
		}
		t.Errorf("no line %q among %q", want, lines)
	}
	for rank := range 4 {
		node := rank / 2
		has(out, fmt.Sprintf("%d: n%d %d %d/%d bar %d,%d 0 4 %s", rank, node+1, node, rank%2, rank, 2*node, 2*node+1, dir))
	}
	for _, want := range []string{"on n2", "rc 1", "rc 3", "rc 137", "rc 2", "0: a", "1: b", "1 2 RUNNING", "4 2(x2) all"} {
		has(out, want)
	}
	errs := strings.Split(read(t, dir+"/err"), "\n")
	for _, want := range []string{
		"srun: error: Only allocated 2 nodes asked for 3", "srun: error: n1: task 1: Exited with exit code 1", "srun: error: n2: task 3: Exited with exit code 3",
		"srun: error: n1: task 0: Killed", "slurmstepd-n1: error: execve(): nosuch: No such file or directory", "srun: error: n1: task 0: Exited with exit code 2",
		"srun: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1",
	} {
		has(errs, want)
	}
	c.eventually(30*time.Second, "the end on both nodes", func() bool { return c.show(1).State == "FAILED" })
}

// TestSessions: srun and salloc outside of jobs, on a shared cluster.
func TestSessions(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "2x2xT4")
	dir := openDir(t)
	r := c.runAs(alice, "srun", "-D", dir, "-G1", "bash", "-c", "echo $SLURM_JOB_ID $SLURM_STEP_ID $SLURM_GPUS_ON_NODE; pwd; id -u; exit 7")
	if want := fmt.Sprintf("1 0 1\n%s\n%d\n", dir, alice); r.code != 7 || r.stdout != want || !strings.Contains(r.stderr, "srun: job 1 queued and waiting for resources\nsrun: job 1 has been allocated resources\n") ||
		!strings.Contains(r.stderr, "srun: error: n1: task 0: Exited with exit code 7\n") {
		t.Errorf("srun: %+v, want %q", r, want)
	}
	if j := c.await(1, "FAILED", "COMPLETED", "CANCELLED"); j.State != "FAILED" || j.code() != 7 {
		t.Errorf("its job ended %s with %d", j.State, j.code())
	}
	r = c.runAs(alice, "salloc", "-N2", "-D", dir, "bash", "-c", "echo $SLURM_JOB_ID $SLURM_JOB_NODELIST; "+berth+" srun -l bash -c 'echo $SLURMD_NODENAME'; exit 5")
	if r.code != 5 || !strings.Contains(r.stdout, "2 n[1-2]\n") || !strings.Contains(r.stdout, "0: n1\n") || !strings.Contains(r.stdout, "1: n2\n") ||
		!strings.Contains(r.stderr, "salloc: Granted job allocation 2\nsalloc: Relinquishing job allocation 2\n") {
		t.Errorf("salloc: %+v", r)
	}
	if j := c.await(2, "FAILED", "COMPLETED", "CANCELLED"); j.State != "COMPLETED" {
		t.Errorf("the allocation ended %s (%s)", j.State, j.Reason)
	}
	term := c.atTerminal(alice, 33, 90, "srun", "-D", dir, "--pty", "sh")
	term.expect("allocated resources")
	term.typed("stty size; echo job=$SLURM_JOB_ID.$SLURM_PROCID; exit 6\n")
	term.expect("33 90\n")
	term.expect("job=3.0\n")
	if code := term.code(); code != 6 {
		t.Errorf("srun --pty ended with %d: %q", code, term.shown())
	}
	if j := c.await(3, "FAILED", "COMPLETED", "CANCELLED"); j.code() != 6 {
		t.Errorf("its job ended %s with %d", j.State, j.code())
	}
	// A user whose machine dies keeps nothing for good, and a cancelled one is told.
	term = c.atTerminal(alice, 24, 80, "salloc", "-D", dir, "sh", "-c", "echo in; sleep 1000")
	term.expect("in\n")
	c.run("scancel", "4")
	term.expect("salloc: Job allocation 4 has been revoked.")
	if code := term.code(); code == 0 {
		t.Errorf("a revoked allocation ends with %d", code)
	}
}

// TestShellOutlivesItsConnection has a shell go on over a new leader, the death
// of the program that shows it, and a user who leaves it.
func TestShellOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x1xT4")
	dir := openDir(t)
	id := c.gated(dir, filepath.Join(dir, "gate"))
	job := fmt.Sprint(id)
	term := c.atTerminal(alice, 30, 100, "shell", job)
	term.typed("cd; PS1=; stty -echo; x=kept; echo pid=$$\n")
	pid := regexp.MustCompile(`pid=(\d+)\n`)
	c.eventually(60*time.Second, "the shell", func() bool { return pid.MatchString(term.shown()) })
	first := pid.FindStringSubmatch(term.shown())[1]

	// Output that is written while there is no leader comes whole.
	term.typed("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line-$i-$x; [ $((i%20)) = 0 ] && sleep 0.05; done; echo all-out\n")
	term.expect("line-40-kept\n")
	was := c.leader()
	c.kill(was.PID)
	c.restart("coordinator", was.ID)
	term.expect("all-out\n")
	shown := term.shown()
	at := 0
	for i := 1; i <= 2000; i++ {
		k := strings.Index(shown[at:], fmt.Sprintf("line-%d-kept\n", i))
		if k < 0 || strings.Count(shown, fmt.Sprintf("line-%d-kept\n", i)) != 1 {
			t.Fatalf("line %d is there %d times, or out of order", i, strings.Count(shown, fmt.Sprintf("line-%d-kept\n", i)))
		}
		at += k
	}

	// The program is killed: the same shell is taken up again.
	if err := term.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	term.code()
	c.eventually(30*time.Second, "a shell that was left", func() bool { return strings.Contains(c.runAs(alice, "shell", "--list", job).stdout, "left; ends in") })
	again := c.atTerminal(alice, 20, 70, "shell", job)
	again.expect("all-out\n") // the last of what it printed
	again.typed("echo $x pid=$$; stty size\n")
	again.expect("kept pid=" + first + "\n20 70\n")
	// The user leaves it by a key, and somebody else may not have it.
	again.typed("\n~d")
	again.expect("left session")
	if code := again.code(); code != 0 {
		t.Errorf("leaving ended with %d", code)
	}
	if r := c.runAs(alice+1, "shell", "--list", job); r.code == 0 {
		t.Errorf("another user sees the sessions: %+v", r)
	}
	last := c.atTerminal(alice, 20, 70, "shell", job)
	last.typed("echo $x again; exit 3\n")
	last.expect("kept again\n")
	if code := last.code(); code != 3 {
		t.Errorf("the shell ended with %d: %q", code, last.shown())
	}
	if r := c.runAs(alice, "shell", "--list", job); strings.Contains(r.stdout, "shell") {
		t.Errorf("it is still there: %+v", r)
	}
	if err := os.WriteFile(filepath.Join(dir, "gate"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.await(id, "FAILED")
}
