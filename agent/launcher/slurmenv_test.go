package launcher

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/agent/launch"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// last returns what a variable is once all lines are set, "-" when none sets it.
func last(env []string, name string) string {
	value := "-"
	for _, line := range env {
		if v, ok := strings.CutPrefix(line, name+"="); ok {
			value = v
		}
	}
	return value
}

// TestSlurmEnvOfSeveralNodes: what Slurm 22.05.8 gave the batch step and a task
// of "sbatch -N2 --ntasks-per-node=2 -c2 --gres=gpu:2".
func TestSlurmEnvOfSeveralNodes(t *testing.T) {
	t.Parallel()
	a := &Launcher{cfg: Config{Node: "n1"}}
	as := &nodev1.Assignment{Job: 2, Attempt: 1, User: "root", Name: "env.sh", CpuMilli: 4000, MemMib: 500, Script: []byte{1},
		Gpus: []*nodev1.Share{{Uuid: "GPU-a"}, {Uuid: "GPU-b"}}, Ranks: &nodev1.Ranks{Nodes: []string{"n1", "n2"}, Tasks: 1}}
	env := a.slurmEnv(as)
	for name, want := range map[string]string{
		"SLURM_JOB_CPUS_PER_NODE": "4(x2)", "SLURM_CPUS_ON_NODE": "4", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODELIST": "n[1-2]",
		"SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2", "SLURM_MEM_PER_NODE": "500", "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_GPUS": "0,1",
		"SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_GTIDS": "0", "SLURM_NTASKS": "-", "SLURM_TASKS_PER_NODE": "1(x2)", // else the request says
	} {
		if got := last(env, name); got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
	// A request that leaves the number of nodes open says how many tasks each has.
	for nodes, want := range map[int][2]string{1: {"2", "2"}, 2: {"4", "2(x2)"}} {
		open := &nodev1.Assignment{Script: []byte{1}, Env: [][]byte{[]byte("SLURM_NTASKS_PER_NODE=2")}, Ranks: &nodev1.Ranks{Nodes: []string{"n1", "n2"}[:nodes], Tasks: 1}}
		env := a.slurmEnv(open)
		if got := [2]string{last(env, "SLURM_NTASKS"), last(env, "SLURM_TASKS_PER_NODE")}; got != want || last(env, "SLURM_NNODES") != fmt.Sprint(nodes) || last(rankEnv(open), "RANK") != "-" {
			t.Errorf("on %d nodes there are %v tasks, want %v", nodes, got, want)
		}
	}
	if env := rankEnv(as); last(env, "RANK") != "-" || last(env, "WORLD_SIZE") != "-" {
		t.Errorf("the batch step has a rank: %q", env)
	}
	as.Ranks.Tasks = 2 // by a line of Berth's: a process each
	if got := last(a.slurmEnv(as), "SLURM_TASKS_PER_NODE"); got != "2(x2)" {
		t.Errorf("two processes on each: SLURM_TASKS_PER_NODE=%s", got)
	}
}

// TestSlurmMemory: Slurm says memory in one way alone, which is that of the
// request.
func TestSlurmMemory(t *testing.T) {
	t.Parallel()
	a := &Launcher{cfg: Config{Node: "n1"}}
	for name, want := range map[string]string{"SLURM_MEM_PER_CPU=10": "-", "SLURM_MEM_PER_GPU=50": "-", "SLURM_NTASKS=2": "100"} {
		as := &nodev1.Assignment{Job: 2, Attempt: 1, MemMib: 100, Env: [][]byte{[]byte(name)}}
		if got := last(a.slurmEnv(as), "SLURM_MEM_PER_NODE"); got != want {
			t.Errorf("beside %s SLURM_MEM_PER_NODE=%s, want %s", name, got, want)
		}
	}
}

func TestSlurmPartition(t *testing.T) {
	t.Parallel()
	a := &Launcher{cfg: Config{Node: "n1"}}
	named := [][]byte{[]byte("SLURM_JOB_PARTITION=typed")}
	for _, tc := range []struct {
		name string
		as   *nodev1.Assignment
		want string
	}{
		{"a cluster without partitions", &nodev1.Assignment{}, "all"},
		{"named there all the same", &nodev1.Assignment{Env: named}, "-"}, // the job's own stays
		{"one of the cluster's", &nodev1.Assignment{Partition: "gpu", Env: named}, "gpu"},
	} {
		if got := last(a.slurmEnv(tc.as), "SLURM_JOB_PARTITION"); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestHolders: where a batch script does not run, and in sessions, our own
// program keeps what the attempt has.
func TestHolders(t *testing.T) {
	t.Parallel()
	session, err := plainconv.PackScript([]byte(hold.Script))
	if err != nil {
		t.Fatal(err)
	}
	a := &Launcher{cfg: Config{Node: "n2", Scripts: t.TempDir()}}
	ranks := &nodev1.Ranks{Nodes: []string{"n1", "n2"}, Tasks: 1, NodeRank: 1}
	if as := (&nodev1.Assignment{Script: session, Ranks: ranks}); !RestOfBatch(as) {
		t.Error("the second node runs the script, too")
	}
	for _, as := range []*nodev1.Assignment{
		{Ranks: ranks}, {Script: session},
		{Script: session, Ranks: &nodev1.Ranks{Nodes: []string{"n1", "n2"}, Tasks: 1}},
		{Script: session, Ranks: &nodev1.Ranks{Nodes: []string{"n1", "n2"}, Tasks: 2, NodeRank: 1}},
	} {
		if RestOfBatch(as) {
			t.Errorf("nothing runs on a node of %v", as)
		}
	}
	l := &launch.Launch{}
	if err := a.placeScript(l, &nodev1.Assignment{Job: 1, Attempt: 1, Script: session}); err != nil {
		t.Fatal(err)
	}
	if l.Ranks == nil || l.Ranks.Hold == nil || l.Ranks.Hold.First == 0 {
		t.Errorf("a session is not held: %+v", l.Ranks)
	}
	if !slices.ContainsFunc(l.Env, func(line string) bool { return strings.HasPrefix(line, hold.Variable+"=berth-hold-") }) {
		t.Errorf("nobody finds the holder: %q", l.Env)
	}
}
