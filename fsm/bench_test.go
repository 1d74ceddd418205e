package fsm

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// perEntry is how many jobs a submission of the benchmarks holds.
const perEntry = 1000

// sweep is a submission of 1,000 jobs that differ in one argument, as those
// of a parameter sweep do.
func sweep(first cluster.JobID, uid cluster.UID) *logv1.Command {
	specs := make([]*cluster.Spec, perEntry)
	for i := range specs {
		s := spec(1)
		s.Env = append(s.Env, "CONDA_PREFIX=/opt/conda/envs/torch", "OMP_NUM_THREADS=8", "LANG=en_US.UTF-8")
		s.Command = append(s.Command, fmt.Sprintf("--seed=%d", int(first)+i))
		s.Features = make([]byte, 200)
		specs[i] = s
	}
	return submitCmd(first, fmt.Sprintf("sweep-%d", first), uid, specs...)
}

// farm is a machine with nodes of eight GPUs each, and jobs that wait.
func farm(t tb, nodes, jobs int) *machine {
	t.Helper()
	m := newMachine(t)
	m.must(initCmd("c1", 1_000_000))
	for i := range nodes {
		m.must(registerCmd(node(cluster.NodeID(fmt.Sprintf("n%04d", i)), "boot", 8)))
	}
	for first := 1; first <= jobs; first += perEntry {
		m.must(sweep(cluster.JobID(first), cluster.UID(1000+first%97)))
	}
	return m
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// TestWaitingJobIsSmall bounds what a job that waits costs in memory, after
// it came through the log and after a restore.
func TestWaitingJobIsSmall(t *testing.T) {
	const jobs, bound = 20_000, 3 << 10
	before := heap()
	m := farm(t, 4, jobs)
	m.f.Hash()
	got := (heap() - before) / jobs
	t.Logf("%d bytes a waiting job", got)
	if got > bound {
		t.Errorf("%d bytes a waiting job, at most %d", got, bound)
	}
	snap := snapshotOf(t, m.f)
	runtime.KeepAlive(m)
	before = heap()
	f := restored(t, snap)
	got = (heap() - before) / jobs
	t.Logf("%d bytes a waiting job after a restore, %d in a snapshot", got, len(snap)/jobs)
	if got > bound {
		t.Errorf("%d bytes a waiting job after a restore, at most %d", got, bound)
	}
	runtime.KeepAlive(snap)
	runtime.KeepAlive(f)
}

func BenchmarkApplySubmit1000(b *testing.B) {
	m := farm(b, 10, 0)
	next := cluster.JobID(1)
	for b.Loop() {
		b.StopTimer()
		data := encode(b, testTerm, m.now, sweep(next, 1000))
		next += perEntry
		m.index++
		b.StartTimer()
		if rs := applyTo(b, m.f, m.index, testTerm, data); rs[0].Err != nil {
			b.Fatal(rs[0].Err)
		}
	}
	b.ReportMetric(float64(perEntry*b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkRegister is what one of so many nodes costs that register, for the first
// time and again, as they do with a new leader: the same for few and for many.
func BenchmarkRegister(b *testing.B) {
	for _, nodes := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				m := newMachine(b)
				m.must(initCmd("c1", 1_000_000))
				var entries [][]byte
				for i := range 2 * nodes {
					n := node(cluster.NodeID(fmt.Sprintf("n%05d", i%nodes)), fmt.Sprint("boot", i/nodes), 8)
					entries = append(entries, encode(b, testTerm, m.now, registerCmd(n)))
				}
				b.StartTimer()
				for _, data := range entries {
					m.index++
					if rs := applyTo(b, m.f, m.index, testTerm, data); rs[0].Err != nil {
						b.Fatal(rs[0].Err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*nodes*b.N), "ns/node")
		})
	}
}

// startsOf is a plan that starts every waiting job, three on a GPU.
func startsOf(m *machine, jobs int) []byte {
	var p dispatch.Plan
	for i := range jobs {
		g := cluster.GPUID(fmt.Sprintf("n%04d-g%d", i/24, i/3%8))
		st := m.startOf(cluster.JobID(i+1), share1(g, 13_000, 300))
		p.Starts = append(p.Starts, st)
	}
	return encode(m.t, testTerm, m.now, planCmd(p))
}

// BenchmarkEndOf10000Dependents is the entry that ends the job for which so many
// others wait.
func BenchmarkEndOf10000Dependents(b *testing.B) {
	for range b.N {
		b.StopTimer()
		m := lab(b)
		on := m.submit(spec(1))
		specs := make([]*cluster.Spec, 1000)
		for i := range specs {
			specs[i] = after(cluster.AfterAny, on)
		}
		for i := range 10 {
			m.must(submitCmd(m.f.NextJobID(), fmt.Sprintf("dependents-%d", i), 1000, specs...))
		}
		cancel := cancelCmd(on, 1000)
		b.StartTimer()
		m.must(cancel)
	}
}

func BenchmarkApplyPlan1000Starts(b *testing.B) {
	for _, waiting := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			m := farm(b, 42, waiting)
			data, snap := startsOf(m, 1000), snapshotOf(b, m.f)
			for b.Loop() {
				b.StopTimer()
				f := restored(b, snap)
				b.StartTimer()
				rs := applyTo(b, f, m.index+1, testTerm, data)
				if n := len(rs[0].Plan.Started); n != 1000 {
					b.Fatalf("%d started: %v", n, rs[0].Plan.Rejected[0])
				}
			}
		})
	}
}

func BenchmarkApplyPlan10000Moves(b *testing.B) {
	m := farm(b, 42, 100_000)
	round := int64(0)
	for b.Loop() {
		b.StopTimer()
		var p dispatch.Plan
		round++
		for i := range 10_000 {
			g := cluster.GPUID(fmt.Sprintf("n%04d-g%d", i%42, i%8))
			p.Moves = append(p.Moves, dispatch.QueueMove{Job: cluster.JobID(i + 1), GPU: g, Rank: round * int64(i%100), Reason: cluster.ReasonQueueOrder})
		}
		data := encode(b, testTerm, m.now, planCmd(p))
		m.index++
		b.StartTimer()
		if rs := applyTo(b, m.f, m.index, testTerm, data); rs[0].Plan.Moved != 10_000 {
			b.Fatalf("%d moved", rs[0].Plan.Moved)
		}
	}
}

// atOnce is Options.Together.
func atOnce(fs ...func()) {
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(f)
	}
	wg.Wait()
}

func BenchmarkSnapshot100000(b *testing.B) {
	m := farm(b, 100, 100_000)
	m.f.opts.Together = atOnce
	m.f.Hash()
	var capture time.Duration
	size := 0
	for b.Loop() {
		began := time.Now()
		snap, err := m.f.Snapshot()
		capture += time.Since(began)
		if err != nil {
			b.Fatal(err)
		}
		var s sink
		if err := snap.Persist(&s); err != nil {
			b.Fatal(err)
		}
		size = s.Len()
	}
	b.ReportMetric(float64(capture.Microseconds())/float64(b.N)/1000, "ms-locked/op")
	b.ReportMetric(float64(size)/100_000, "bytes/job")
}

// BenchmarkCapture is for how long a snapshot pauses the state machine, with as many
// running jobs to digest as entries may leave.
func BenchmarkCapture(b *testing.B) {
	for _, jobs := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
			m := farm(b, 100, jobs)
			m.index++
			applyTo(b, m.f, m.index, testTerm, startsOf(m, table.MaxDirty))
			m.f.Hash()
			for b.Loop() {
				b.StopTimer()
				for id := range cluster.JobID(table.MaxDirty) {
					m.f.st.roll.Digests.Jobs.Touch(id + 1)
				}
				b.StartTimer()
				if _, err := m.f.Snapshot(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRestore100000(b *testing.B) {
	snap := snapshotOf(b, farm(b, 100, 100_000).f)
	for b.Loop() {
		if err := New(Options{Together: atOnce}).Restore(io.NopCloser(bytes.NewReader(snap))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(snap))/1e6, "MB")
}

func BenchmarkSchedulerSnapshot100000(b *testing.B) {
	m := farm(b, 100, 100_000)
	for b.Loop() {
		if n := len(m.f.SchedulerSnapshot().Waiting); n != 100_000 {
			b.Fatalf("%d wait", n)
		}
	}
}

func BenchmarkListPage(b *testing.B) {
	m := farm(b, 10, 100_000)
	for b.Loop() {
		if jobs, _ := m.f.Jobs(Query{After: 50_000, Limit: 100}); len(jobs) != 100 {
			b.Fatalf("%d jobs", len(jobs))
		}
	}
}

// BenchmarkEntriesWithCheckpoints measures the worst entry beside the mean
// one: the checkpoint every 1,000 entries must not stall those that wait.
func BenchmarkEntriesWithCheckpoints(b *testing.B) {
	m := farm(b, 42, 100_000)
	m.f.Hash()
	round, worst := uint64(0), time.Duration(0)
	for b.Loop() {
		b.StopTimer()
		var p dispatch.Plan
		round++
		for i := range uint64(20) {
			p.Moves = append(p.Moves, dispatch.QueueMove{
				Job: cluster.JobID((round*20+i)%100_000 + 1), GPU: cluster.GPUID(fmt.Sprintf("n%04d-g0", i)), Rank: int64(round), Reason: cluster.ReasonQueueOrder,
			})
		}
		m.index++
		l := &raft.Log{Index: m.index, Term: testTerm, Data: encode(b, testTerm, m.now, planCmd(p))}
		b.StartTimer()
		began := time.Now()
		m.f.Apply(l)
		worst = max(worst, time.Since(began))
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "ms-worst")
}
