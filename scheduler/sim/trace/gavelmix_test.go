package trace_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

func TestAssignGavel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("gavel_isolated.csv", "gpu_type,job,scale_factor,tput_alone\nv100,one,1,5\nv100,two,1,5\nv100,many,2,5\nk80,old,1,5\nv100,never,1,0\n")
	write("gavel_pairs.csv", "gpu_type,job1,job2,norm1,norm2\nv100,one,two,0.5,0.8\nv100,one,one,0,0\n")
	write("train_peak_mem.csv", "model,batch_size,gpu,peak_mem_mib\nx,16,RTX 3090,5000\nx,32,RTX 3090,30000\nx,16,RTX 3070,1000\n")
	w := &workload.Workload{Jobs: []workload.Job{{ID: "a", GPUs: 1}, {ID: "b", GPUs: 1}, {ID: "c", GPUs: 1}, {ID: "known", GPUs: 1, MemMiB: 7}, {ID: "cores"}}}
	got, err := trace.AssignGavel(w, dir, dir, 24<<10, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range got.Jobs[:3] {
		if j.Model != "one" && j.Model != "two" || j.MemMiB != 5000 || j.UsedMilli < 200 || j.UsedMilli > 820 {
			t.Errorf("job %s got %q, %d MiB and %d thousandths", j.ID, j.Model, j.MemMiB, j.UsedMilli)
		}
	}
	if got.Jobs[3].MemMiB != 7 || got.Jobs[4].MemMiB != 0 {
		t.Errorf("a job whose memory is known, or that needs no GPU, got another: %v", got.Jobs[3:])
	}
	pairs, err := trace.GavelPairs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pairs.Len() != 2 {
		t.Errorf("%d ordered pairs, want the 2 that ran", pairs.Len())
	}
	speed := make([]float64, 2)
	pairs.Speeds("V100", []slowdown.Load{{Model: "one"}, {Model: "two"}}, speed)
	if speed[0] != 0.5 || speed[1] != 0.8 {
		t.Errorf("speeds %v, want 0.5 and 0.8", speed)
	}
}
