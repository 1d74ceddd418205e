package cli

import (
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestShowsAllNodes: a job on several nodes is shown with each of them, also to
// those who ask as under Slurm.
func TestShowsAllNodes(t *testing.T) {
	t.Parallel()
	whole := func(uuid string, index uint32) []*apiv1.GPUShare {
		return []*apiv1.GPUShare{{Uuid: uuid, Type: "T4", Index: index, Share: &apiv1.Share{MemMib: 15000, Milli: 1000, Exclusive: true}}}
	}
	code := int32(7)
	at := timestamppb.New(now)
	spec := &apiv1.JobSpec{Name: "train", Command: [][]byte{[]byte("python"), []byte("train.py")}, Gpus: 1, Nodes: 3, TasksPerNode: 2, Stdout: []byte("%j-%t.out")}
	w, f := newWorld(t), newFake()
	f.jobs = append(f.jobs, &apiv1.Job{
		Id: 50, Name: "train", User: "ada", Uid: 1000, State: "COMPLETING", Reason: "NonZeroExitCode", ReasonDetail: "node n2: exit code 7; the other nodes end",
		Node: "n1", NodeList: "n[1-3]", GpusWanted: 1, NodesWanted: 3, TasksPerNode: 2, Gpus: whole("GPU-1a", 0), Submitted: at, Started: at, Spec: spec,
		Attempts: []*apiv1.Attempt{{
			No: 1, State: "COMPLETING", Node: "n1", Gpus: whole("GPU-1a", 0), Placed: at, Started: at, Why: "3 nodes with 1 GPU T4 free on each", Port: 20017,
			Parts: []*apiv1.Part{
				{Node: "n1", State: "RUNNING", Gpus: whole("GPU-1a", 0), Ready: true},
				{Node: "n2", State: "FAILED", Reason: "NonZeroExitCode", ReasonDetail: "exit code 7", Gpus: whole("GPU-2a", 1), ExitCode: &code, Ready: true},
				{Node: "n3", State: "STARTING", Gpus: whole("GPU-3a", 0), Ready: true},
			},
		}},
	})
	w.serve("/a", f)
	golden(t, "show-gang", w.transcript("show", "50"))
	golden(t, "show-gang-json", w.transcript("show", "-o", "json", "50"))
}
