package sruncmd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/agent/step"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/cluster/outputpath"
)

var _ = draws.Fixed()

func jobWith(env ...string) *job {
	vars := map[string]string{}
	for _, line := range env {
		name, v, _ := strings.Cut(line, "=")
		vars[name] = v
	}
	j, err := jobFrom(func(name string) string { return vars[name] })
	if err != nil {
		panic(err)
	}
	return j
}

// twoByTwo is "sbatch -N2 -n4" with two GPUs on each node.
func twoByTwo() *job {
	return jobWith("SLURM_JOB_ID=57", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=2(x2)", "SLURM_JOB_CPUS_PER_NODE=2(x2)", "SLURM_NTASKS=4", "SLURM_GPUS_ON_NODE=2")
}

// TestLayout has the placements, words and refusals of Slurm 22.05.8.
func TestLayout(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ args, want string }{
		{"cmd", "n1:0,1 n2:2,3"},
		{"-n1 cmd", "n1:0 | Warning: can't run 1 processes on 2 nodes, setting nnodes to 1"},
		{"-n2 cmd", "n1:0 n2:1"},
		{"-n3 cmd", "n1:0,1 n2:2"},
		{"-N1 -n1 -w n2 cmd", "n2:0"},
		{"-N2 cmd", "n1:0 n2:1"},
		{"-x n1 -n2 cmd", "n2:0,1"},
		{"-r1 -N1 cmd", "n2:0"},
		{"--ntasks-per-node=1 cmd", "n1:0 n2:1"},
		{"-n5 cmd", "Unable to create step for job 57: More processors requested than permitted"},
		{"-n5 -O cmd", "n1:0,1,2 n2:3,4"},
		{"-n4 -c2 cmd", "Unable to create step for job 57: More processors requested than permitted"},
		{"-N3 cmd", "Only allocated 2 nodes asked for 3"},
		{"-w n3 cmd", "Unable to create step for job 57: Requested node configuration is not available"},
		{"-n0 cmd", "Invalid numeric value \"0\" for --ntasks."},
		{"--gres=gpu:3 cmd", "Unable to create step for job 57: Invalid generic resource (gres) specification"},
	} {
		o, err := parse(strings.Fields(tc.args))
		var l *layout
		if err == nil {
			l, err = lay(o, twoByTwo())
		}
		got := fmt.Sprint(err)
		if err == nil {
			var parts []string
			for _, p := range l.places {
				parts = append(parts, p.node+":"+p.ranks())
			}
			got = strings.Join(append([]string{strings.Join(parts, " ")}, l.warnings...), " | ")
		}
		if got != tc.want {
			t.Errorf("srun %s: %s, want %s", tc.args, got, tc.want)
		}
	}
}

// TestEveryTaskHasAPlace: whatever is asked for, tasks are numbered from 0 on
// without a gap, and none is on a node that the job has not.
func TestEveryTaskHasAPlace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes, tasks := rapid.IntRange(1, 8).Draw(t, "nodes"), rapid.IntRange(1, 40).Draw(t, "tasks")
		j := jobWith("SLURM_JOB_ID=1", fmt.Sprintf("SLURM_JOB_NODELIST=n[1-%d]", nodes))
		if nodes == 1 {
			j.nodes = []string{"n1"}
		}
		o := &options{values: map[string]string{"ntasks": fmt.Sprint(tasks)}}
		if k := rapid.IntRange(0, nodes).Draw(t, "asked"); k > 0 {
			o.values["nodes"] = fmt.Sprint(k)
		}
		l, err := lay(o, j)
		if err != nil {
			t.Fatal(err)
		}
		next := 0
		for i, p := range l.places {
			if p.first != next || p.tasks < 1 || p.id != i || p.node != j.nodes[p.inJob] {
				t.Fatalf("place %d: %+v, next task is %d", i, p, next)
			}
			next += p.tasks
		}
		if next != tasks || l.tasks != tasks {
			t.Fatalf("%d tasks of %d have a place", next, tasks)
		}
		counts, ok := unfoldCounts(l.perNode())
		if !ok || sum(counts) != tasks || len(counts) != len(l.places) {
			t.Fatalf("%q is %v", l.perNode(), counts)
		}
	})
}

func TestStepEnv(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"cmd"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := lay(o, twoByTwo())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range stepEnv(l, twoByTwo(), 3, 2) {
		if !strings.HasPrefix(line, "SLURM_UMASK=0") {
			got = append(got, line)
		}
	}
	want := []string{
		"SLURM_STEP_ID=3", "SLURM_STEPID=3", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_TASKS_PER_NODE=2(x2)",
		"SLURM_NTASKS=4", "SLURM_NPROCS=4", "SLURM_NNODES=2", "SLURM_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=2(x2)", "SLURM_DISTRIBUTION=block", "SLURM_CPUS_PER_TASK=2",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestExported(t *testing.T) {
	t.Parallel()
	env := []string{"A=1", "B=2", "SLURMD_NODENAME=n1", "CUDA_VISIBLE_DEVICES=0", "BERTH_SOCKET=x", "PATH=/bin"}
	for export, want := range map[string]string{"": "A=1 B=2 PATH=/bin", "ALL": "A=1 B=2 PATH=/bin", "NONE": "", "A,C=3": "A=1 C=3", "ALL,Z=9": "A=1 B=2 PATH=/bin Z=9"} {
		if got := strings.Join(exported(env, export), " "); got != want {
			t.Errorf("--export=%s: %s, want %s", export, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		ranks []int
		want  string
	}{{[]int{3}, "task 3"}, {[]int{0, 1}, "tasks 0-1"}, {[]int{0, 2}, "tasks 0,2"}, {[]int{0, 1, 2, 5, 7, 8}, "tasks 0-2,5,7-8"}} {
		if got := tasksText(tc.ranks); got != tc.want {
			t.Errorf("%v: %s", tc.ranks, got)
		}
	}
	for how, want := range map[ended]string{
		{code: 7}: "Exited with exit code 7", {code: 137, signal: 9}: "Killed", {code: 143, signal: 15}: "Terminated",
		{code: 139, signal: 11, core: 1}: "Segmentation fault (core dumped)", {code: 138, signal: 10}: "User defined signal 1",
	} {
		if got := how.text(); got != want {
			t.Errorf("%+v: %s, want %s", how, got, want)
		}
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	o := newOutputs(&options{values: map[string]string{"label": ""}}, 12, &out, &errs, patterns{})
	for _, w := range []struct {
		kind step.Kind
		task int
		text string
	}{{step.Stdout, 3, "a\nno"}, {step.Stdout, 11, "b\n"}, {step.Stderr, 0, "e\n"}, {step.Stdout, 3, "nl"}} {
		if err := o.write(w.kind, w.task, []byte(w.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.close(); err != nil {
		t.Fatal(err)
	}
	if out.String() != " 3: a\n11: b\n 3: nonl\n" || errs.String() != " 0: e\n" {
		t.Errorf("%q %q", out.String(), errs.String())
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	two, one := 2, uint32(1)
	p := patterns{names: outputpath.Names{Job: 7, Step: &two, User: "ann", Name: "x", Array: 7, Task: &one}, nodeOf: func(task int) (string, int) { return fmt.Sprintf("n%d", task), task }}
	for path, want := range map[string]string{"o.%t": "o.3", "%J-%04t": "7.2-0003", "%N.%n.%s": "n3.3.2", "%A_%a.%u": "7_1.ann", `\%t`: "%t", "%%%z%": "%%z%"} {
		if got := p.expand(path, 3); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestGPUsAreShared: two steps never have the same GPU, and one that ended gives
// back what it had.
func TestGPUsAreShared(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/steps"
	if err := writeEmpty(path); err != nil {
		t.Fatal(err)
	}
	a, b := openCounter(path), openCounter(path)
	if one, err := a.next(); err != nil || one != 0 {
		t.Fatal(one, err)
	}
	if two, err := b.next(); err != nil || two != 1 {
		t.Fatal(two, err)
	}
	first, ok := a.take(claim{at: 0, have: 2, n: 1})
	second, ok2 := b.take(claim{at: 0, have: 2, n: 1})
	if !ok || !ok2 || first[0] == second[0] {
		t.Fatalf("%v %v", first, second)
	}
	if _, ok := b.take(claim{at: maxGPUs, have: 2, n: 2}); !ok {
		t.Error("another node's are not free")
	}
	c := openCounter(path)
	if got, ok := c.take(claim{at: 0, have: 2, n: 1}); ok {
		t.Errorf("a third step has %v", got)
	}
	a.f.Close()
	if got, ok := c.take(claim{at: 0, have: 2, n: 1}); !ok || got[0] != first[0] {
		t.Errorf("what a step gave back is not free: %v %v", got, ok)
	}
	c.take(claim{at: lockBase, have: 1, n: 1})
	c = openCounter(path)
	l := &layout{gpus: 2, places: []place{{}}}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := c.takeAll(ctx, l, &job{gpus: 2}, cancel); err == nil {
		t.Error("two are free though one is taken")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("-n 4 --gres=gpu:1 --pty bash -c 'x'")
	f.Add("-lu -N2-3 --export=ALL,A=1 cmd")
	f.Fuzz(func(t *testing.T, line string) {
		o, err := parse(strings.Fields(line))
		if err == nil {
			_, _ = lay(o, twoByTwo()) // it may refuse, and must not panic
		}
	})
}

func writeEmpty(path string) error { return os.WriteFile(path, nil, 0o600) }
