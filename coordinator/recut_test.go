package coordinator_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// migCard returns a GPU in MIG mode with one instance, and the instances as they are offered.
func migCard(of *nodev1.MIGInstance) (*nodev1.MIGCard, *nodev1.GPU) {
	profiles := []*nodev1.MIGProfile{
		{Name: "7g.80gb", MemMib: 80_000, Compute: 7, Size: 8, Starts: []uint32{0}},
		{Name: "1g.10gb", MemMib: 10_000, Compute: 1, Size: 1, Starts: []uint32{0, 1, 2, 3, 4, 5, 6}},
	}
	mem := int64(10_000)
	if of.Profile == "7g.80gb" {
		mem = 80_000
	}
	return &nodev1.MIGCard{Uuid: "GPU-1", Type: "A100", Profiles: profiles, Instances: []*nodev1.MIGInstance{of}},
		&nodev1.GPU{Uuid: of.Uuid, Type: "A100." + of.Profile, MemMib: mem, CapMode: "mig", Scope: "never"}
}

func nextCut(t *testing.T, a *coordtest.Agent) *nodev1.CutGPU {
	t.Helper()
	select {
	case cut := <-a.Cuts:
		return cut
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing is cut")
		return nil
	}
}

// TestAGPUIsCutForAJob: a small job does not take a whole GPU in MIG mode that can be cut: it
// waits for the cut, meanwhile the whole one is drained, and no trace of that stays. A size
// that no GPU has yet may be asked for.
func TestAGPUIsCutForAJob(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	card, whole := migCard(&nodev1.MIGInstance{Uuid: "MIG-whole", Profile: "7g.80gb", Size: 8})
	busy, other := migCard(&nodev1.MIGInstance{Uuid: "MIG-other", Profile: "7g.80gb", Size: 8})
	busy.Uuid = "GPU-2"
	a := c.Agent(0, "n1", "b1", other)
	large := spec(70_000)
	assigned(t, a, submitted(t, cc, alice, reqID(0), large)[0])
	a.CanCut(card, busy)
	a.Hello("n1", "b1", whole, other)
	within(t, "the GPU is offered", func() bool { return len(nodeOf(t, cc, "n1").Gpus) == 2 })
	typed := spec(8000)
	typed.GpuType = "A100.1g.10gb"
	id := submitted(t, cc, alice, reqID(1), typed)[0]
	cut := nextCut(t, a)
	if cut.Uuid != "GPU-1" || len(cut.Drop) != 1 || cut.Drop[0] != "MIG-whole" || len(cut.Make) != 1 || cut.Make[0].Profile != "1g.10gb" {
		t.Fatalf("cut %v", cut)
	}
	why, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: id})
	const says = "GPU GPU-1 of node n1 is cut anew for it since "
	if err != nil || why.Job.Reason != "GPUBeingCut" || !strings.HasPrefix(why.Job.ReasonDetail, says) ||
		!slices.ContainsFunc(why.Explanations, func(e *apiv1.Explanation) bool { return e.Detail == why.Job.ReasonDetail }) {
		t.Errorf("while it is cut: %v, %v", why, err)
	}
	list, err := apirpc.NewJobServiceClient(cc).ListJobs(as(t, alice), &apiv1.ListJobsRequest{Columns: apiv1.JobColumnsOf_JOB_COLUMNS_OF_WAITING})
	if err != nil || list.Columns == nil || !slices.Contains(list.Columns.Texts, "GPUBeingCut") {
		t.Errorf("while it is cut: %v, %v", list, err)
	}
	if g := gpuOf(t, cc, "n1", "MIG-whole"); !g.Drain || !strings.Contains(g.DrainReason, "cut anew for job") {
		t.Errorf("while it is cut: %v", g)
	}
	made, gpu := migCard(&nodev1.MIGInstance{Uuid: "MIG-part", Profile: "1g.10gb", Start: cut.Make[0].Start, Size: 1})
	a.CanCut(made, busy)
	a.Hello("n1", "b1", gpu, other)
	if asg := assigned(t, a, id); asg.Gpus[0].Uuid != "MIG-part" {
		t.Fatalf("job %d is on %v", id, asg.Gpus)
	}
	// The rest of the GPU is cut for the next, and nothing goes for it: seconds after the first
	// cut, though by then nothing else happens.
	submitted(t, cc, alice, reqID(2), spec(8000))
	if cut = nextCut(t, a); len(cut.Drop) != 0 || cut.Make[0].Profile != "1g.10gb" || cut.Make[0].Start == made.Instances[0].Start {
		t.Errorf("the next cut: %v", cut)
	}
	a.CanCut()
	a.Hello("n1", "b1", gpu, whole, other)
	within(t, "both are offered", func() bool { return len(nodeOf(t, cc, "n1").Gpus) == 3 })
	within(t, "the drain is over", func() bool { return !gpuOf(t, cc, "n1", "MIG-whole").Drain })
}

// oneWholeInstance is a cluster whose only GPU is one instance that may be cut, and whose
// clock is so far ahead.
func oneWholeInstance(t *testing.T, ahead *atomic.Int64) (*grpc.ClientConn, *coordtest.Agent) {
	t.Helper()
	c := coordtest.Start(t, coordtest.Options{N: 1, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	cc := c.Dial(0, "gate", "g")
	card, whole := migCard(&nodev1.MIGInstance{Uuid: "MIG-whole", Profile: "7g.80gb", Size: 8})
	a := c.Agent(0, "n1", "b1")
	a.CanCut(card)
	a.Hello("n1", "b1", whole)
	within(t, "the GPU is offered", func() bool { return len(nodeOf(t, cc, "n1").Gpus) == 1 })
	return cc, a
}

// TestAJobDoesNotWaitForACutForEver: an agent that does not cut costs a small job seconds.
func TestAJobDoesNotWaitForACutForEver(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	cc, a := oneWholeInstance(t, &ahead)
	id := submitted(t, cc, alice, reqID(1), spec(8000))[0]
	nextCut(t, a)
	ahead.Store(int64(2 * time.Minute)) // less than a lease
	if asg := assigned(t, a, id); asg.Gpus[0].Uuid != "MIG-whole" {
		t.Errorf("job %d is on %v", id, asg.Gpus)
	}
}

// TestAGPUIsNotCutBeforeAJobsTime: a job that begins later has no part in the cut for one that
// waits now, and one of its own when its time has come.
func TestAGPUIsNotCutBeforeAJobsTime(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	cc, a := oneWholeInstance(t, &ahead)
	later := spec(8000)
	later.Begin = timestamppb.New(time.Now().Add(10 * time.Hour))
	submitted(t, cc, alice, reqID(1), later)
	id := submitted(t, cc, alice, reqID(2), spec(8000))[0]
	cut := nextCut(t, a)
	if len(cut.Make) != 1 {
		t.Fatalf("cut %v", cut)
	}
	made, gpu := migCard(&nodev1.MIGInstance{Uuid: "MIG-part", Profile: "1g.10gb", Start: cut.Make[0].Start, Size: 1})
	a.CanCut(made)
	a.Hello("n1", "b1", gpu)
	assigned(t, a, id)
	ahead.Store(int64(11 * time.Hour))
	if cut = nextCut(t, a); len(cut.Make) != 1 || cut.Make[0].Start == made.Instances[0].Start {
		t.Errorf("when its time has come: %v", cut)
	}
}
