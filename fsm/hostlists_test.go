package fsm

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// TestHostListsTakeNoMoreThanTheirText: whatever jobs, partitions and reservations
// say of nodes, a replica holds it as it was written, after a restore as well. The
// names of one such list, written out, take two megabytes.
func TestHostListsTakeNoMoreThanTheirText(t *testing.T) {
	const jobs = 500
	m := lab(t)
	heap := func() int64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	before := heap()
	for i := range jobs {
		s := spec(1)
		s.Hold = true
		s.Where = &cluster.Where{Exclude: hosts(t, fmt.Sprintf("x[0-16382],y%d", i)), Nodes: hosts(t, "n1")}
		m.submit(s)
	}
	m.must(partitionCmd(&cluster.Partition{Name: "wide", Nodes: hosts(t, "x[0-16383]")}, 0))
	r := &dispatch.Reservation{Name: "r1", Start: m.now.Add(time.Hour), Duration: time.Hour, Nodes: hosts(t, "x[0-16383]"), Users: []string{"1000"}}
	m.must(reservationCmd(r, 0))
	if held := heap() - before; held > 16<<20 {
		t.Errorf("%d jobs that exclude 16,384 names hold %d MiB", jobs, held>>20)
	}
	before = heap()
	f := restored(t, snapshotOf(t, m.f))
	if held := heap() - before; held > 16<<20 {
		t.Errorf("restored they hold %d MiB", held>>20)
	}
	j, ok := f.Job(7)
	if !ok || !j.Spec.Where.Exclude.Holds("x16382") || j.Spec.Where.Exclude.Holds("x16383") || j.Spec.Where.Exclude.Holds("n1") {
		t.Error("what is excluded is lost")
	}
	runtime.KeepAlive(m)
}
