package jobcmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestShowsAllNodes: a job on several nodes is shown with each of them, also to
// those who ask as under Slurm.
func TestShowsAllNodes(t *testing.T) {
	t.Parallel()
	whole := func(uuid string, index uint32) []*apiv1.GPUShare {
		return []*apiv1.GPUShare{{Uuid: uuid, Type: "T4", Index: index, Share: &apiv1.Share{MemMib: 15000, Milli: 1000, Exclusive: true}}}
	}
	at := timestamppb.New(clitest.Now)
	spec := &apiv1.JobSpec{Name: "train", Command: [][]byte{[]byte("python"), []byte("train.py")}, Gpus: 1, CpuMilli: 4000, MemMib: 8192, Nodes: 3, TasksPerNode: 2, Stdout: []byte("%j-%t.out")}
	w, f := clitest.NewWorld(t), clitest.NewFake()
	f.Jobs = append(f.Jobs, &apiv1.Job{
		Id: 50, Name: "train", User: "ada", Uid: 1001, State: "COMPLETING", Reason: "NonZeroExitCode", ReasonDetail: "node n2: exit code 7; the other nodes end",
		Node: "n1", NodeList: "n[1-3]", GpusWanted: 1, NodesWanted: 3, TasksPerNode: 2, Gpus: whole("GPU-1a", 0), Submitted: at, Started: at, Spec: spec,
		Attempts: []*apiv1.Attempt{{
			No: 1, State: "COMPLETING", Node: "n1", Gpus: whole("GPU-1a", 0), Placed: at, Started: at, Why: "3 nodes with 1 GPU T4 free on each", Port: 20017,
			Parts: []*apiv1.Part{
				{Node: "n1", State: "RUNNING", Gpus: whole("GPU-1a", 0), Ready: true},
				{Node: "n2", State: "FAILED", Reason: "NonZeroExitCode", ReasonDetail: "exit code 7", Gpus: whole("GPU-2a", 1), ExitCode: new(int32(7)), Ready: true},
				{Node: "n3", State: "STARTING", Gpus: whole("GPU-3a", 0), Ready: true},
			},
		}},
	})
	w.Serve("/a", f)
	golden.Check(t, "show-gang", w.Transcript("show", "50"))
	golden.Check(t, "show-gang-json", w.Transcript("show", "-o", "json", "50"))
	for name, line := range map[string]string{
		"scontrol-gang":    "scontrol show job 50",
		"squeue-gang":      "squeue -j 50",
		"squeue-gang-each": "squeue -j 50 -O jobid:6,numnodes:6,nodelist:10,numtasks:6,numcpus:6,mincpus:9,batchhost:10",
		"sacct-gang":       "sacct -j 50 -P -o JobID,State,NNodes,NodeList,NTasks,NCPUS,ReqTRES",
	} {
		w := clitest.NewWorld(t)
		p := clitest.NewParted()
		p.Jobs = append(p.Jobs, f.Jobs[len(f.Jobs)-1])
		w.ServeParted("/a", p)
		golden.Check(t, "slurm-"+name, w.Transcript(strings.Fields(line)...))
	}
}

// TestGangsNeedANetwork: asked for in whatever way, several nodes without one are
// refused with what to do.
func TestGangsNeedANetwork(t *testing.T) {
	t.Parallel()
	const want = "net and nodes: a job on 2 nodes needs their network; drop --net none, or ask for one node"
	file := filepath.Join(t.TempDir(), "gang.yaml")
	if err := os.WriteFile(file, []byte("command: [\"true\"]\nnodes: 2\nnet: none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "gang.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n#BERTH --nodes 2\n#BERTH --net none\ntrue\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"flags":  {"--nodes", "2", "--net", "none", "--", "true"},
		"file":   {file},
		"script": {script},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Serve("/a", clitest.NewFake())
			if code := w.Run(append([]string{"submit"}, args...)...); code != console.ExitUsage || !strings.Contains(w.Errs.String(), want) {
				t.Errorf("exit code %d: %s, want %q", code, w.Errs.String(), want)
			}
		})
	}
}
