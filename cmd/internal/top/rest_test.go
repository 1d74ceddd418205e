package top_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// BenchmarkAtRest is the processor time of a screen on 10,000 jobs and 1,000 cards of
// which none changes, the coordinator's part of it included: it is a fake one in this
// process. One round is ten seconds.
func BenchmarkAtRest(b *testing.B) {
	w, f := world(b), clitest.NewFake()
	f.Jobs, f.Nodes = nil, nil
	for n := range 125 {
		node := &apiv1.Node{Id: fmt.Sprintf("gpu%03d", n), State: "ready"}
		for i := range uint32(8) {
			id := uint64(len(f.Jobs) + 1)
			g := &apiv1.GPU{Uuid: fmt.Sprintf("GPU-%d-%d", n, i), Index: i, Type: "H100", MemMib: 81559, SellableMib: 80000, LedgerUsedMib: 20000, Shares: 1, MeasuredUsedMib: 15000, MeasuredUtilMilli: 600, Jobs: []uint64{id}}
			f.Jobs = append(f.Jobs, &apiv1.Job{Id: id, Name: fmt.Sprintf("train-%d", id), User: "bob", Uid: 1002, State: "RUNNING", Node: node.Id, GpusWanted: 1, Started: clitest.Ago(time.Hour),
				Gpus: []*apiv1.GPUShare{{Uuid: g.Uuid, Type: "H100", Index: i, Share: &apiv1.Share{MemMib: 20000, Milli: 300}}}})
			node.Gpus = append(node.Gpus, g)
		}
		f.Nodes = append(f.Nodes, node)
	}
	for id := uint64(1001); id <= 10000; id++ {
		f.Jobs = append(f.Jobs, &apiv1.Job{Id: id, Name: fmt.Sprintf("wait-%d", id), User: "ann", Uid: 1001, State: "PENDING", Reason: "GPUMemory", GpusWanted: 1, Submitted: clitest.Ago(time.Hour)})
	}
	w.Serve("/a", f)
	term := open(b, w, 200, 50, "gpu", "top")
	term.await("1000 running, 9000 waiting", "of 1000 GPUs held")
	time.Sleep(5 * time.Second) // what began has settled
	var used, wall time.Duration
	for b.Loop() {
		began, at := spent(b), time.Now()
		time.Sleep(10 * time.Second)
		used, wall = used+spent(b)-began, wall+time.Since(at)
	}
	b.ReportMetric(100*used.Seconds()/wall.Seconds(), "cpu-%")
	term.leave()
}

// spent is the processor time of this process.
func spent(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
