package sbatch

import (
	"slices"
	"strings"
	"testing"
)

// settleLine resolves options as they stand on a command line.
func settleLine(t *testing.T, line string) (*Request, []Outcome) {
	t.Helper()
	var words []Word
	for _, w := range strings.Fields(line) {
		words = append(words, Word{Text: w})
	}
	set, faults, rest := Scan(words, FromCommandLine, nil, true)
	if len(faults) > 0 || len(rest) > 0 {
		t.Fatalf("%s: %v %v", line, faults, rest)
	}
	return Resolve(set, nil)
}

// TestTasksOnNodes: where tasks are not as many on each node the first nodes have one
// more, as sbatch tells its jobs; all nodes have the cores for as many.
func TestTasksOnNodes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line, perNode, tasks string
		nodes, cpus          int64
	}{
		{"-N2 -n3", "2,1", "3", 2, 2}, {"-N3 -n5 -c4", "2(x2),1", "5", 3, 8}, {"-N4 -n5", "2,1(x3)", "5", 4, 2}, {"-N2 -n4", "2(x2)", "4", 2, 2},
		{"-N2 -n3 --ntasks-per-node=2", "2,1", "3", 2, 2}, {"-N4 -n2", "1(x2)", "2", 2, 1}, {"-N2 -n1", "1", "1", 0, 1},
	} {
		req, out := settleLine(t, tc.line)
		for _, o := range out {
			if o.Fate == Refused {
				t.Errorf("%s: %s", tc.line, o.Line())
			}
		}
		if !slices.Contains(req.Env, "SLURM_TASKS_PER_NODE="+tc.perNode) || !slices.Contains(req.Env, "SLURM_NTASKS="+tc.tasks) {
			t.Errorf("%s: %v, want %s tasks as %s", tc.line, req.Env, tc.tasks, tc.perNode)
		}
		if req.Nodes != tc.nodes || req.CPUs != tc.cpus {
			t.Errorf("%s: %d nodes of %d cores, want %d of %d", tc.line, req.Nodes, req.CPUs, tc.nodes, tc.cpus)
		}
	}
	if _, out := settleLine(t, "-N9 -n2"); !slices.ContainsFunc(out, func(o Outcome) bool {
		return o.Fate == Ignored && o.Note == "can't run 2 processes on 9 nodes, setting nnodes to 2"
	}) {
		t.Errorf("fewer tasks than nodes: %v", out)
	}
	if _, out := settleLine(t, "-N2 -n5 --ntasks-per-node=2"); !slices.ContainsFunc(out, func(o Outcome) bool { return o.Fate == Refused }) {
		t.Errorf("five tasks on two nodes of two: %v", out)
	}
}

// TestOpenMode: a job is told how its files are opened, since its steps open theirs
// the same way.
func TestOpenMode(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{"--open-mode=append": "a", "--open-mode=t": "t", "--open-mode=Truncate": "t", "-n1": ""} {
		req, _ := settleLine(t, line)
		if has := slices.Contains(req.Env, "SLURM_OPEN_MODE="+want); has != (want != "") || req.Truncate != (want == "t") {
			t.Errorf("%s: %v, emptied: %t", line, req.Env, req.Truncate)
		}
	}
}
