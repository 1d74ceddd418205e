package fsm

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// wide is a machine of 42 nodes and an array of 100,000 tasks.
func wide(t tb) (*machine, cluster.JobID) {
	t.Helper()
	m := farm(t, 42, 0)
	s := spec(1)
	a, err := cluster.ParseArray("0-99999")
	if err != nil {
		t.Fatalf("%v", err)
	}
	s.Array = a
	return m, m.submit(s)
}

// TestArrayIsSmall bounds what 100,000 tasks cost while they wait: in the log, in
// memory and in a snapshot, and that a pass is shown few of them.
func TestArrayIsSmall(t *testing.T) {
	before := heap()
	m, id := wide(t)
	if got := heap() - before; got > 40<<20 {
		t.Errorf("the state grew by %d bytes, at most 40 MiB", got)
	}
	if n := len(snapshotOf(t, m.f)); n > 1<<20 {
		t.Errorf("a snapshot of %d bytes", n)
	}
	s := spec(1)
	s.Array, _ = cluster.ParseArray("0-99999")
	if n := proto.Size(submitCmd(1, "0123456789abcdef", 1000, s)); n > 4096 {
		t.Errorf("%d bytes in the log", n)
	}
	if n := m.f.Counts()[cluster.JobPending]; n != 100_000 {
		t.Errorf("%d tasks wait", n)
	}
	snap := m.f.SchedulerSnapshot()
	last := snap.Waiting[len(snap.Waiting)-1]
	if n := len(snap.Waiting); n < 42*8 || n > 4000 || n+snap.More[last.ID] != 100_000 {
		t.Errorf("%d tasks are shown, %d more are told of", n, snap.More[last.ID])
	}
	if r := m.must(tasksCmd(changeCmd(id, "", logv1.TaskChange_TASK_CHANGE_CANCEL))); r.Tasks.Done != 100_000 {
		t.Errorf("%+v were cancelled", r.Tasks)
	}
}

func BenchmarkArray100000(b *testing.B) {
	b.Run("submit", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			m := farm(b, 42, 0)
			s := spec(1)
			s.Array, _ = cluster.ParseArray("0-99999")
			cmd := submitCmd(1, "0123456789abcdef", 1000, s)
			b.StartTimer()
			m.must(cmd)
		}
	})
	b.Run("cancel", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			m, id := wide(b)
			cmd := tasksCmd(changeCmd(id, "", logv1.TaskChange_TASK_CHANGE_CANCEL))
			b.StartTimer()
			m.must(cmd)
		}
	})
	b.Run("snapshot for a pass", func(b *testing.B) {
		m, _ := wide(b)
		for b.Loop() {
			m.f.SchedulerSnapshot()
		}
	})
	b.Run("restore", func(b *testing.B) {
		m, _ := wide(b)
		snap := snapshotOf(b, m.f)
		for b.Loop() {
			restored(b, snap)
		}
		b.ReportMetric(float64(len(snap)), "bytes")
	})
}
