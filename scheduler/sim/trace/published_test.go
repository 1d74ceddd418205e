package trace_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/scheduler/sim/trace"
)

func TestReadPublished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("pods_b.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,1,500\n")
	put("pods_a.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,1,500\n")
	put("frag.csv", "workload,sc_policy,tune,seed,129,130\npods_a,x,1.3,42,1,2\n")
	if got, err := trace.ReadPublished(dir, 130); err != nil || got != nil {
		t.Errorf("without the table: %v, %v", got, err)
	}
	put("allo.csv", "workload,sc_policy,tune,seed,129,130\npods_a,06-FGD,1.3,42,93,94\npods_a,06-FGD,1.3,43,95,97\npods_b,06-FGD,1.3,42,1,2\n")
	got, err := trace.ReadPublished(dir, 130)
	if err != nil {
		t.Fatal(err)
	}
	want := []trace.Published{{List: "pods_a", Policy: "06-FGD", Mean: 95.5, Runs: 2}, {List: "pods_b", Policy: "06-FGD", Mean: 2, Runs: 1}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	lists, err := trace.Lists(dir)
	if d := cmp.Diff([]string{"pods_a", "pods_b"}, lists); err != nil || d != "" {
		t.Errorf("lists: %v %s", err, d)
	}
	put("allo.csv", "workload,sc_policy,tune,seed,130\npods_a,06-FGD,1.3,42,much\n")
	if _, err := trace.ReadPublished(dir, 130); err == nil {
		t.Error("a figure that is none was taken")
	}
}
