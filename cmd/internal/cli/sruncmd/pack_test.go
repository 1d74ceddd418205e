package sruncmd

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestStepsPack: of steps that want their cores to themselves as many run at once as
// the job has cores for, as measured with 22.05.8; others take no part in it.
func TestStepsPack(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args, env string
		nodes     int
		want      int // of eight at once
	}{
		{"-n1 --exact", "", 1, 4}, {"-n1 --exclusive", "", 1, 4}, {"-n1 -c2", "", 1, 2}, {"-n1 -c2 --exact", "", 1, 2}, {"-n3 --exact", "", 1, 1}, {"-n4 --exact", "", 1, 1},
		{"-n1 --exact --overlap", "", 1, 8}, {"-n1", "", 1, 8}, {"-n1", "SLURM_EXACT", 1, 4}, {"-n1 --exact", "SLURM_OVERLAP", 1, 8},
		{"-N2 -n2 --exact", "", 2, 4}, {"-N1 -n1 --exact -r1", "", 2, 4}, {"-n4 --exact", "", 2, 2},
		// Of 1000 MiB a node.
		{"-n1 --mem=300", "", 1, 3}, {"-n1 --mem=250M", "", 1, 4}, {"-n1 --mem=1000", "", 1, 1}, {"-n1 --mem=0", "", 1, 8}, {"-n1 --mem=300 --overlap", "", 1, 8},
		{"-n2 --mem-per-cpu=100", "", 1, 5}, {"-n1 -c2 --mem-per-cpu=200", "", 1, 2}, {"-n2 -N2 --mem=500", "", 2, 2}, {"-n1 -N1 --mem=501 --exact", "", 2, 1},
	} {
		t.Run(tc.args+" "+tc.env, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "steps")
			if err := writeEmpty(path); err != nil {
				t.Fatal(err)
			}
			j := &job{id: 1, nodes: []string{"n1", "n2"}[:tc.nodes], counts: []int{4, 4}[:tc.nodes], cpus: []int{4, 4}[:tc.nodes], memMiB: []int64{1000, 1000}[:tc.nodes], tasks: 4 * tc.nodes}
			ran := 0
			var steps []*counter // to be held until all have been tried
			for range 8 {
				o, err := parse(append(strings.Fields(tc.args), "cmd"))
				if err != nil {
					t.Fatal(err)
				}
				o.take(func(name string) string { return map[string]string{tc.env: "1"}[name] })
				l, err := lay(o, j)
				if err != nil {
					t.Fatal(err)
				}
				c := openCounter(path)
				steps = append(steps, c)
				if _, ok := c.tryAll(l, j); ok {
					ran++
				}
			}
			for _, c := range steps {
				if err := c.f.Close(); err != nil {
					t.Error(err)
				}
			}
			if ran != tc.want {
				t.Errorf("%d steps at once, want %d", ran, tc.want)
			}
		})
	}
}
