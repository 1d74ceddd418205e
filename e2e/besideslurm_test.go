package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/owner"
	"github.com/berth-scheduler/berth/agent/gpu/sim"
	"github.com/berth-scheduler/berth/e2e/slurmsite"
)

// TestBesideSlurm: an agent that offers two of a node's four cards works
// beside a slurmd that has the others. Neither gives out what the other has,
// and a process of a Slurm job on a card of Berth's is one that nobody started
// here.
func TestBesideSlurm(t *testing.T) {
	s := slurmsite.Start(t, slurmsite.Options{CPUs: 2, GPUs: 2, Params: "defer,batch_sched_delay=1,sched_min_interval=50000,sched_interval=1"})
	c := startClusterWith(t, []string{"BERTH_GPUS_ONLY=2-3", "BERTH_NODE_CPUS=1", "BERTH_NODE_MEMORY_MIB=1000"}, "--nodes", "1x4xT4")
	if out := c.run("gpu", "list", "-o", "name"); strings.Count(out, "\n") != 2 {
		t.Fatalf("offered:\n%s", out)
	}
	if out := c.run("node", "list", "-o", "json"); !strings.Contains(out, `"cpu_milli": 1000`) || !strings.Contains(out, `"mem_mib": 1000`) {
		t.Errorf("cores and memory of Slurm's are offered too:\n%s", out)
	}
	// All that each has, at once.
	theirs := strings.TrimSpace(s.Output("", "sbatch", "--parsable", "-G2", "--mem=500", "-o", s.Dir()+"/slurm.out", "--wrap",
		"echo cards $CUDA_VISIBLE_DEVICES; echo $$ >"+s.Dir()+"/pid; sleep 300"))
	ours := c.submit("--gpus", "2", "--mem", "200M", "--", "sh", "-c", "echo cards $CUDA_VISIBLE_DEVICES; sleep 300")
	j := c.await(ours, "RUNNING")
	s.Wait("a running job", func() bool { return s.Output("", "squeue", "-h", "-j", theirs, "-o", "%t") == "R\n" })
	for _, g := range j.GPUs {
		if g.UUID != sim.UUID("n1", 2) && g.UUID != sim.UUID("n1", 3) {
			t.Errorf("a job has card %s, which is Slurm's", g.UUID)
		}
	}
	// A third GPU is nobody's to give.
	if out, err := s.Try("sbatch", "-G3", "--wrap", "true"); err == nil {
		t.Errorf("Slurm takes a job of 3 cards: %s", out)
	}
	if r := c.runAs(0, "submit", "--gpus", "3", "--", "true"); r.code == 0 {
		t.Errorf("Berth takes a job of 3 cards: %s", r.stdout)
	}
	s.Wait("the job's process", func() bool { data, _ := os.ReadFile(s.Dir() + "/pid"); return strings.HasSuffix(string(data), "\n") })
	pid, err := strconv.Atoi(strings.TrimSpace(read(t, s.Dir()+"/pid")))
	if err != nil {
		t.Fatal(err)
	}
	find := owner.New(owner.Config{Parent: "/berth", User: func(uint32) string { return "somebody" }})
	s.Wait("the name of a stray", func() bool {
		usage := []gpu.Usage{{UUID: "GPU-2", UsedMiB: 500, Processes: []gpu.Process{{PID: pid, MemMiB: 500}}}}
		find.Mark()(usage)
		strays, mib := usage[0].Strays()
		if len(strays) != 1 || mib != 500 {
			t.Fatalf("Slurm's process on a card of Berth's is taken for %+v", usage[0].Processes)
		}
		return strays[0].User == "somebody" // names are looked up aside
	})
	// Each ends its own, and the way back is to stop the agent.
	s.Output("", "scancel", theirs)
	c.run("cancel", fmt.Sprint(ours))
	c.await(ours, "CANCELLED")
	s.Wait("the end of Slurm's job", func() bool { return s.Output("", "squeue", "-h") == "" })
}
