package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// The sizes of a busy cluster on which a hostile user did what may be done.
const (
	bigNodes   = 500
	bigWaiting = 20_000
	bigTasks   = 100_000 // of an array; 4,000 of them were held one by one
	bigApart   = 4000
	bigWaiters = 400 // jobs that wait for job 1, and for 500 others
)

// bigState is a snapshot of such a cluster.
func bigState(tb testing.TB) []byte {
	m := newMachine(tb)
	m.must(initCmd("c1", 20_000))
	for i := range bigNodes {
		m.must(registerCmd(node(cluster.NodeID(fmt.Sprintf("n%d", i+1)), "boot1", 8)))
	}
	m.must(partitionCmd(&cluster.Partition{Name: "gpu", Nodes: hosts(tb, "ALL")}, 0))
	m.must(setCmd(&accounting.Account{Name: "bio", Shares: 1}, 0))
	m.must(setCmd(quota(accounting.Subject{Each: true}, accounting.Limits{Jobs: 1_000_000}), 0))
	many := func(n int, rid string, change func(i int, s *cluster.Spec)) cluster.JobID {
		first := m.f.NextJobID()
		for from := 0; from < n; from += 1000 {
			var specs []*cluster.Spec
			for i := from; i < min(n, from+1000); i++ {
				s := spec(1)
				change(i, s)
				specs = append(specs, s)
			}
			m.must(submitCmd(m.f.NextJobID(), fmt.Sprint(rid, from), 1000, specs...))
		}
		return first
	}
	many(bigWaiting, "plain", func(i int, s *cluster.Spec) {
		if s.Partition, s.Account = "gpu", "bio"; i >= 3000 && i < 4000 {
			s.Deadline = t0.Add(time.Minute)
		}
	})
	many(bigWaiters, "waiters", func(_ int, s *cluster.Spec) {
		for on := range 501 {
			s.Depends = append(s.Depends, cluster.Dependency{Kind: cluster.AfterAny, Job: cluster.JobID(on) + 1})
		}
	})
	s := spec(1)
	s.Array, _ = cluster.ParseArray(fmt.Sprintf("0-%d", bigTasks-1))
	bigArray := m.submit(s)
	for i := range bigApart {
		m.must(holdCmd(bigArray+cluster.JobID(2*i), 1000, false))
	}
	plan := dispatch.Plan{}
	for i := range bigNodes * 4 {
		id, n := cluster.JobID(1000+i), i/4+1
		st := dispatch.Start{Job: id, Attempt: 1, Why: "first fit", Berth: cluster.Berth{Node: cluster.NodeID(fmt.Sprintf("n%d", n)), CPUMilli: 1000, MemMiB: 1024}}
		st.Berth.GPUs = []cluster.GPUShare{share1(cluster.GPUID(fmt.Sprintf("n%d-g%d", n, i%4)), 8000, 300)}
		plan.Starts = append(plan.Starts, st)
	}
	for i := range 5000 {
		plan.Moves = append(plan.Moves, dispatch.QueueMove{Job: cluster.JobID(5000 + i), GPU: "n1-g7", Rank: int64(i)})
	}
	if r := m.must(planCmd(plan)); len(r.Plan.Started) != bigNodes*4 || r.Plan.Moved != 5000 {
		tb.Fatalf("%d started, %d moved", len(r.Plan.Started), r.Plan.Moved)
	}
	return snapshotOf(tb, m.f)
}

const bigArrayID = bigWaiting + bigWaiters + 1

// costliest are the most expensive commands of each kind that a leader proposes in
// one entry: kinds that are not here look at one job or node. An entry is as many of
// them as Cost lets into one.
func costliest(tb testing.TB) map[string]func(f *FSM) []*logv1.Command {
	one := func(c *logv1.Command) func(*FSM) []*logv1.Command {
		return func(*FSM) []*logv1.Command { return []*logv1.Command{c} }
	}
	lots := func(n int, make func(i int) *logv1.Command) func(*FSM) []*logv1.Command {
		return func(f *FSM) (out []*logv1.Command) {
			cost := 0
			for i := range n {
				c := make(i)
				if cost += f.Cost(c); cost > EntryCost && i > 0 {
					break
				}
				out = append(out, c)
			}
			return out
		}
	}
	submit := func(n int, change func(i int, s *cluster.Spec)) func(*FSM) []*logv1.Command {
		return func(f *FSM) []*logv1.Command {
			var specs []*cluster.Spec
			for i := range n {
				s := spec(1)
				change(i, s)
				specs = append(specs, s)
			}
			c := submitCmd(f.NextJobID(), "costly", 1000, specs...)
			if size := proto.Size(c); size > 3<<20 {
				tb.Fatalf("a submit of %d bytes is refused", size)
			}
			return []*logv1.Command{c}
		}
	}
	change := func(tasks string, c logv1.TaskChange) func(*FSM) []*logv1.Command {
		return lots(2048, func(int) *logv1.Command { return tasksCmd(changeCmd(bigArrayID, tasks, c)) })
	}
	throttled := changeCmd(bigArrayID, "", logv1.TaskChange_TASK_CHANGE_THROTTLE)
	throttled.Throttle = 7
	var moves, starts dispatch.Plan
	for i := range 5000 {
		moves.Moves = append(moves.Moves, dispatch.QueueMove{Job: cluster.JobID(5000 + i), GPU: "n2-g7", Rank: int64(5000 - i)})
	}
	for i := range 1000 {
		n := i/4 + 1
		st := dispatch.Start{Job: cluster.JobID(11_000 + i), Attempt: 1, Why: "first fit", Berth: cluster.Berth{Node: cluster.NodeID(fmt.Sprintf("n%d", n)), CPUMilli: 1000, MemMiB: 1024}}
		st.Berth.GPUs = []cluster.GPUShare{share1(cluster.GPUID(fmt.Sprintf("n%d-g%d", n, i%4)), 8000, 300)}
		starts.Starts = append(starts.Starts, st)
	}
	expired := make([]cluster.JobID, 1000)
	for i := range expired {
		expired[i] = cluster.JobID(i + 3000)
	}
	anew := estimated([]cluster.Estimate{{GPUType: "A100", GPUMemMiB: 9000}, {GPUType: "T4", GPUMemMiB: 9000}})
	for i := range EntryCost - 2 {
		anew.Jobs = append(anew.Jobs, uint64(5000+i))
	}
	// Leaders write down how far 500 attempts are at once, and the loads of 200 services.
	far := lots(8, func(i int) *logv1.Command {
		c := &logv1.NoteProgress{}
		for k := range 500 {
			pull := &cluster.Pull{Layers: 100, Done: uint32(i), Bytes: 1 << 40, Got: int64(i) << 30}
			c.Attempts = append(c.Attempts, conv.NotePull(cluster.AttemptID{Job: cluster.JobID(1000 + i%4*500 + k), No: 1}, pull))
		}
		return &logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: c}}
	})
	loads := func(f *FSM) (out []*logv1.Command) {
		first := f.NextJobID()
		var specs []*cluster.Spec
		for range 1000 {
			specs = append(specs, serves(1))
		}
		slot := func(at int64) *logv1.Command {
			c := &logv1.NoteLoads{}
			for i := range 1000 {
				c.Services = append(c.Services, &logv1.ServiceLoad{Array: uint64(first) + uint64(3*i), Slot: at, Load: 7, Each: 1})
			}
			return &logv1.Command{Kind: &logv1.Command_NoteLoads{NoteLoads: c}}
		}
		const week = 7 * 24 * 12
		for _, c := range []*logv1.Command{submitCmd(first, "services", 1000, specs...), slot(5), slot(5 + week - 1)} {
			if r := applyTo(tb, f, f.Index()+1, testTerm, encode(tb, testTerm, f.Now(), c))[0]; r.Err != nil {
				tb.Fatal(r.Err)
			}
		}
		if a := f.st.roll.Arrays[first]; a == nil || a.Load == nil || len(a.Load.Loads) != week {
			tb.Fatal("no service has the load of a week")
		}
		return lots(2, func(i int) *logv1.Command { return slot(int64(5 + week + i)) })(f)
	}
	list := strings.Repeat("n[1,3],", 63) + "x[0-9999]"
	return map[string]func(*FSM) []*logv1.Command{
		"estimates of jobs in a queue": one(&logv1.Command{Kind: &logv1.Command_EstimateJobs{EstimateJobs: &logv1.EstimateJobs{Groups: []*logv1.EstimatedJobs{anew}}}}),
		"submit of 1000 jobs":          submit(1000, func(int, *cluster.Spec) {}),
		"submit with host lists": submit(1000, func(_ int, s *cluster.Spec) {
			s.Where = &cluster.Where{Nodes: hosts(tb, "n1"), Exclude: hosts(tb, list)}
		}),
		"submit with large environments": submit(3, func(i int, s *cluster.Spec) {
			for k := range cluster.MaxEnv {
				s.Env = append(s.Env, fmt.Sprintf("A%d=%d%s", k, i, strings.Repeat("x", cluster.MaxEnvLine-20)))
			}
		}),
		"last parts of large environments": func(f *FSM) (last []*logv1.Command) {
			for i, cost := 0, 0; ; i++ {
				var env []string
				for k := range cluster.MaxEnv {
					env = append(env, fmt.Sprintf("A%d=%d%s", k, i, strings.Repeat("x", cluster.MaxEnvLine-20)))
				}
				parts := partsCmds(1000, env, make([]byte, cluster.MaxPackedScript))
				n := len(parts) - 1
				if cost += f.Cost(parts[n]); cost > EntryCost {
					return last
				}
				last = append(last, parts[n])
				for _, c := range parts[:n] {
					if r := applyTo(tb, f, f.Index()+1, testTerm, encode(tb, testTerm, f.Now(), c))[0]; r.Err != nil {
						tb.Fatal(r.Err)
					}
				}
			}
		},
		"submit with dependencies": submit(20, func(_ int, s *cluster.Spec) {
			for on := range 1000 {
				s.Depends = append(s.Depends, cluster.Dependency{Kind: cluster.AfterAny, Job: cluster.JobID(on) + 1})
			}
			s.DependAny = true
		}),
		"submit after an array, a while": submit(1000, func(_ int, s *cluster.Spec) {
			s.Depends = []cluster.Dependency{{Kind: cluster.After, Job: bigArrayID, Delay: time.Minute}}
		}),
		"submit of arrays, task by task": submit(1000, func(_ int, s *cluster.Spec) {
			s.Array, _ = cluster.ParseArray("0-149")
			s.Depends = []cluster.Dependency{{Kind: cluster.AfterCorr, Job: bigArrayID}}
		}),
		"submit of many ranges": submit(1, func(_ int, s *cluster.Spec) {
			var b strings.Builder
			for i := 0; b.Len() < 1<<18-16; i++ {
				fmt.Fprintf(&b, "%d,", i*(i+1)/2%4_000_000)
			}
			s.Array, _ = cluster.ParseArray(b.String() + "1")
		}),
		"how far images are":          far,
		"loads of services":           loads,
		"cancels":                     lots(2048, func(i int) *logv1.Command { return cancelCmd(cluster.JobID(15_000+i), 1000) }),
		"cancels that many wait for":  lots(1000, func(i int) *logv1.Command { return cancelCmd(cluster.JobID(i+1), 1000) }),
		"cancel of an array":          change("", logv1.TaskChange_TASK_CHANGE_CANCEL),
		"tasks far beyond the array":  change("2-4194303", logv1.TaskChange_TASK_CHANGE_CANCEL),
		"every second task held":      change("1-99999:2", logv1.TaskChange_TASK_CHANGE_HOLD),
		"throttle":                    one(tasksCmd(throttled)),
		"time limit of an array":      change("", logv1.TaskChange_TASK_CHANGE_TIME_LIMIT),
		"plan that moves":             one(planCmd(moves)),
		"plan that starts":            one(planCmd(starts)),
		"expiry":                      one(expireCmd(expired...)),
		"a node that booted again":    one(registerCmd(node("n1", "boot2", 8))),
		"a node that fell silent":     one(silentCmd("n1", "boot1")),
		"partition on fewer nodes":    one(partitionCmd(&cluster.Partition{Name: "gpu", Nodes: hosts(tb, "n[1-9]")}, bigNodes+2)),
		"quota":                       one(setCmd(quota(accounting.Subject{Account: "bio"}, accounting.Limits{Jobs: 1_000_000}), 0)),
		"holds":                       lots(2048, func(i int) *logv1.Command { return holdCmd(cluster.JobID(15_000+i), 1000, false) }),
		"holds of those in one queue": lots(2048, func(i int) *logv1.Command { return holdCmd(cluster.JobID(5000+i), 1000, false) }),
	}
}

// applyCostliest is how long the entry takes in Apply.
func applyCostliest(tb testing.TB, big []byte, of func(*FSM) []*logv1.Command) (took time.Duration, refused *cluster.Error) {
	f := restored(tb, big)
	f.st.blobs.KeepBy(shelf{}.keep)
	f.Hash()
	cmds := of(f)
	data := encode(tb, testTerm, f.Now().Add(time.Second), cmds...)
	began := time.Now()
	rs := f.Apply(&raft.Log{Index: f.Index() + 1, Term: testTerm, Data: data}).([]Result)
	return time.Since(began), rs[0].Err
}

// TestCostliestEntry: no entry that a leader proposes keeps a replica from
// answering. A hundred times what is aimed at is no slow machine any more; what
// each takes, BenchmarkCostliestEntry says.
func TestCostliestEntry(t *testing.T) {
	big := bigState(t)
	for name, of := range costliest(t) {
		t.Run(name, func(t *testing.T) {
			took, refused := applyCostliest(t, big, of)
			if took > 100*20*time.Millisecond {
				t.Errorf("took %s", took)
			}
			if refused != nil && name != "tasks far beyond the array" {
				// They would cost nothing.
				t.Errorf("was refused: %v", refused)
			}
		})
	}
}

func BenchmarkCostliestEntry(b *testing.B) {
	big := bigState(b)
	all := costliest(b)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.Run(name, func(b *testing.B) {
			least := time.Hour
			for range 5 {
				took, _ := applyCostliest(b, big, all[name])
				least = min(least, took)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(least.Microseconds())/1000, "ms/entry")
		})
	}
}
