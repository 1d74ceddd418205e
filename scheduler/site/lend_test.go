package site

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// hook gives a job a checkpoint hook with so much grace.
func hook(grace time.Duration) schedtest.JobOption {
	return func(j *cluster.Job) { j.Spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: grace} }
}

// lending are a partition serve on some nodes that lends to train on others.
func lending(t interface{ Fatal(...any) }, serve, train string) []*cluster.Partition {
	l := partition(t, "serve", serve)
	l.Lend = cluster.Lending{To: []string{"train"}, Short: time.Minute}
	return []*cluster.Partition{l, partition(t, "train", train)}
}

// passOver makes a full pass over a world with partitions and applies its starts and moves.
func passOver(w *schedtest.World, s *Site, parts []*cluster.Partition) dispatch.Plan {
	snap := w.Snapshot()
	snap.Partitions = parts
	Prepare(snap, s, Full)
	plan := Plan(snap, s, Full)
	w.Apply(&plan)
	return plan
}

// asked has those make room whom a plan names.
func asked(w *schedtest.World, plan *dispatch.Plan) {
	for _, v := range plan.Preempt {
		j := w.Jobs[v.Job].Clone()
		j.Last().Preempt = &cluster.PreemptRequest{At: w.Clock, For: v.For, Why: v.Why}
		w.Jobs[v.Job] = j
	}
}

// gone ends those who were asked; they wait again.
func gone(w *schedtest.World) {
	for id, j := range w.Jobs {
		if !j.Preempting() {
			continue
		}
		w.End(id)
		j = w.Jobs[id].Clone()
		j.Last().State, j.State, j.Ended, j.Eligible = cluster.JobPreempted, cluster.JobPending, 0, w.Clock
		w.Jobs[id] = j
	}
}

func lentTo(w *schedtest.World) (ids []cluster.JobID) {
	for id, j := range w.Jobs {
		if j.OnLoan() != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func TestWhoMayBorrow(t *testing.T) {
	t.Parallel()
	gaveBack := func(ago time.Duration, n int) schedtest.JobOption {
		return func(j *cluster.Job) {
			for range n {
				j.Attempts = append(j.Attempts, cluster.Attempt{State: cluster.JobPreempted, Loan: "serve", Preempt: &cluster.PreemptRequest{At: schedtest.Now.Add(-ago)}})
			}
		}
	}
	surely := func(d time.Duration) schedtest.JobOption {
		return func(j *cluster.Job) {
			j.Estimates = []cluster.Estimate{{GPUType: "T4", Duration: d, ConfidenceMilli: 1000}}
		}
	}
	l := cluster.Lending{To: []string{"train"}, Short: time.Minute}
	for _, c := range []struct {
		name string
		l    cluster.Lending
		opts []schedtest.JobOption
		want string // words of why not, "" for may
	}{
		{"with a hook", l, []schedtest.JobOption{hook(time.Second)}, ""},
		{"without, of unknown length", l, nil, "nobody knows whether it ends within 1m"},
		{"nine in ten end in a minute", l, []schedtest.JobOption{surely(40 * time.Second)}, ""},
		{"nine in ten end just later", l, []schedtest.JobOption{surely(41 * time.Second)}, "and may take"},
		{"limited to a minute", l, []schedtest.JobOption{schedtest.Limit(time.Minute), surely(time.Hour)}, ""},
		{"no short ones", cluster.Lending{To: l.To}, []schedtest.JobOption{schedtest.Limit(time.Second)}, "no checkpoint hook"},
		{"with a deadline", l, []schedtest.JobOption{hook(time.Second), func(j *cluster.Job) { j.Spec.Deadline = schedtest.Now.Add(time.Hour) }}, "deadline"},
		{"a replica", l, []schedtest.JobOption{hook(time.Second), replicaOf(1)}, "replica"},
		{"without GPUs", l, []schedtest.JobOption{hook(time.Second), schedtest.GPUs(0)}, "no GPU"},
		{"gave back a moment ago", l, []schedtest.JobOption{hook(time.Second), gaveBack(59*time.Second, 1)}, "less than"},
		{"gave back a minute ago", l, []schedtest.JobOption{hook(time.Second), gaveBack(time.Minute, 99)}, ""},
		{"gave back too often", l, []schedtest.JobOption{hook(time.Second), gaveBack(time.Hour, 100)}, "100 times"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := CannotBorrow(schedtest.Job(1, c.opts...), &c.l, schedtest.Now)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestALoanComesAndGoes: trainers borrow what serve leaves idle; replicas have it back, and
// meanwhile nothing is lent; then what is idle again is lent again.
func TestALoanComesAndGoes(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"ffd", "slot+fifo", "slot+las"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s, parts := &Site{Chosen: byName(t, policy)}, lending(t, "n[1-2]", "n3")
			w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 2, "T4"), schedtest.Node("n2", 2, "T4"), schedtest.Node("n3", 1, "T4")})
			w.Runs = func(*cluster.Job) time.Duration { return 100 * time.Hour }
			w.Submit(schedtest.Job(1, of("serve"), schedtest.Exclusive))
			passOver(w, s, parts)
			for id := cluster.JobID(10); id < 16; id++ {
				w.Submit(schedtest.Job(id, of("train"), schedtest.Exclusive, hook(30*time.Second)))
			}
			w.Submit(schedtest.Job(20, of("train"), schedtest.Exclusive)) // nobody knows how long
			passOver(w, s, parts)
			if got := lentTo(w); len(got) != 3 || w.Jobs[20].Live() != nil || len(w.Rejected) > 0 {
				t.Fatalf("on loan are %v, refused %v", got, w.Rejected)
			}
			if lent, borrowed := Loans(w.Snapshot().Running, parts[0]); lent != 3 || borrowed != 0 {
				t.Errorf("serve: %d lent, %d borrowed", lent, borrowed)
			}
			if lent, borrowed := Loans(w.Snapshot().Running, parts[1]); lent != 0 || borrowed != 3 {
				t.Errorf("train: %d lent, %d borrowed", lent, borrowed)
			}
			w.Advance(time.Minute)
			for id := cluster.JobID(2); id < 4; id++ {
				w.Submit(schedtest.Job(id, of("serve"), schedtest.Exclusive, replicaOf(2)))
			}
			plan := passOver(w, s, parts)
			if len(plan.Preempt) != 2 {
				t.Fatalf("for two replicas %d give back: %+v", len(plan.Preempt), plan.Preempt)
			}
			for _, v := range plan.Preempt {
				if !v.Loan || w.Jobs[v.Job].OnLoan() != "serve" || v.For < 2 || v.For > 3 || !strings.Contains(v.Why, "given back to partition serve") {
					t.Errorf("%+v", v)
				}
			}
			asked(w, &plan)
			if plan = passOver(w, s, parts); len(plan.Preempt) > 0 || len(plan.Starts) > 0 {
				t.Errorf("while two save their state: %+v", plan)
			}
			w.Advance(30 * time.Second)
			gone(w)
			for range 3 {
				plan = passOver(w, s, parts)
				if len(plan.Preempt) > 0 {
					t.Errorf("asked again: %+v", plan.Preempt)
				}
			}
			if w.Jobs[2].Live() == nil || w.Jobs[3].Live() == nil || len(lentTo(w)) != 1 {
				t.Errorf("the replicas are %v and %v, on loan %v", w.Jobs[2].State, w.Jobs[3].State, lentTo(w))
			}
			w.End(2)
			passOver(w, s, parts)
			if got := lentTo(w); len(got) != 2 {
				t.Errorf("one replica went, on loan are %v", got)
			}
		})
	}
}

// TestOnlyWhatIsIdleIsLent: no card on which somebody of the lender has a part, and nothing
// while a job of the lender waits for another that still saves its state.
func TestOnlyWhatIsIdleIsLent(t *testing.T) {
	t.Parallel()
	s, parts := &Site{Chosen: byName(t, "ffd")}, lending(t, "n1", "n2")
	w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 3, "T4"), schedtest.Node("n2", 0, "")})
	w.Runs = func(*cluster.Job) time.Duration { return 100 * time.Hour }
	w.Submit(schedtest.Job(1, of("serve"), schedtest.Mem(2000), schedtest.Util(100)))
	passOver(w, s, parts)
	for id := cluster.JobID(10); id < 30; id++ {
		w.Submit(schedtest.Job(id, of("train"), schedtest.Mem(9000), schedtest.Util(800), hook(time.Minute)))
	}
	passOver(w, s, parts)
	if on := w.OnGPU(w.Jobs[1].Live().HeldGPUs()[0].GPU); len(on) != 1 || len(lentTo(w)) != 2 {
		t.Fatalf("beside the lender's job are %v, on loan %v", on, lentTo(w))
	}
	w.Submit(schedtest.Job(2, of("serve"), schedtest.Exclusive, schedtest.GPUs(2)))
	plan := passOver(w, s, parts)
	if len(plan.Preempt) != 2 {
		t.Fatalf("%+v", plan.Preempt)
	}
	asked(w, &plan)
	w.End(plan.Preempt[0].Job) // its card is idle, and others of train would fit there
	if passOver(w, s, parts); len(lentTo(w)) != 1 {
		t.Errorf("job 2 waits, and on loan are %v", lentTo(w))
	}
}

// TestShortLoansEnd: what has no hook is asked back only once it ran for longer than it was
// to, and at once if its lender lends to nobody any more.
func TestShortLoansEnd(t *testing.T) {
	t.Parallel()
	s, parts := &Site{Chosen: byName(t, "ffd")}, lending(t, "n1", "n2")
	w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 1, "T4"), schedtest.Node("n2", 0, "")})
	w.Runs = func(*cluster.Job) time.Duration { return time.Hour }
	w.Submit(schedtest.Job(1, of("train"), schedtest.Exclusive, schedtest.Predict("T4", 1000, 500, 20*time.Second)))
	passOver(w, s, parts)
	if len(lentTo(w)) != 1 {
		t.Fatal("it does not borrow")
	}
	w.Submit(schedtest.Job(2, of("serve"), schedtest.Exclusive))
	w.Advance(59 * time.Second)
	if plan := passOver(w, s, parts); len(plan.Preempt) != 0 {
		t.Errorf("within its minute: %+v", plan.Preempt)
	}
	w.Advance(time.Second)
	if plan := passOver(w, s, parts); len(plan.Preempt) != 1 {
		t.Errorf("after it: %+v", plan.Preempt)
	}
	w.Clock = w.Clock.Add(-30 * time.Second)
	parts[0].Lend = cluster.Lending{}
	if plan := passOver(w, s, parts); len(plan.Preempt) != 1 {
		t.Errorf("serve lends no more: %+v", plan.Preempt)
	}
}

// lentWorld draws a world in which train has borrowed of serve, and what serve's jobs ask
// for that come then.
func lentWorld(t *rapid.T) (*schedtest.World, []*cluster.Partition) {
	var nodes []*cluster.Node
	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		nodes = append(nodes, schedtest.Node(cluster.NodeID(fmt.Sprintf("n%d", i+1)), rapid.IntRange(1, 4).Draw(t, "cards"), "T4"))
	}
	nodes = append(nodes, schedtest.Node("n9", 1, "T4"))
	w := schedtest.NewWorld(nodes)
	w.Runs = func(*cluster.Job) time.Duration { return 100 * time.Hour }
	parts := lending(t, "n[1-3]", "n9")
	for i := range rapid.IntRange(0, 2).Draw(t, "served") {
		w.Submit(schedtest.Job(cluster.JobID(1+i), of("serve"), schedtest.Exclusive))
	}
	passOver(w, &Site{Chosen: byName(t, "ffd")}, parts)
	for i := range rapid.IntRange(0, 9).Draw(t, "trainers") {
		opts := []schedtest.JobOption{of("train"), schedtest.GPUs(rapid.IntRange(1, 2).Draw(t, "GPUs")), schedtest.Exclusive}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0: // nobody knows
		case 1:
			opts = append(opts, schedtest.Limit(30*time.Second))
		default:
			opts = append(opts, hook(time.Duration(rapid.IntRange(1, 3).Draw(t, "grace"))*time.Minute))
		}
		w.Submit(schedtest.Job(cluster.JobID(10+i), opts...))
	}
	return w, parts
}

// TestLoansAsANaiveModel: nobody borrows who may not, where somebody of the lender lies or
// waits, or of whom does not lend; what is given back is the least choice of all, found by
// trying each; and who waited for it starts then.
func TestLoansAsANaiveModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &Site{Chosen: byName(t, rapid.SampledFrom([]string{"ffd", "slot+fifo", "slot+las"}).Draw(t, "policy"))}
		w, parts := lentWorld(t)
		passOver(w, s, parts)
		for _, id := range lentTo(w) {
			if why := CannotBorrow(w.Jobs[id], &parts[0].Lend, w.Clock); why != "" || w.Jobs[id].Spec.Partition != "train" {
				t.Fatalf("job %d borrows: %s", id, why)
			}
			for _, g := range w.Jobs[id].Live().HeldGPUs() {
				if on := w.OnGPU(g.GPU); len(on) != 1 {
					t.Fatalf("on %s are %v", g.GPU, on)
				}
			}
		}
		w.Advance(20 * time.Second) // short ones cannot be asked yet
		late := schedtest.Job(50, of("serve"), schedtest.GPUs(rapid.IntRange(1, 3).Draw(t, "late")), schedtest.Exclusive)
		w.Submit(late)
		had := lentTo(w)
		plan := passOver(w, s, parts)
		least := naiveLeast(w, had, late.Spec.GPUs)
		started := w.Jobs[50].Live() != nil
		switch {
		case started && len(plan.Preempt) > 0:
			t.Fatalf("it starts, and %+v", plan.Preempt)
		case started:
			return
		case len(plan.Preempt) != bits.OnesCount(uint(least)):
			t.Fatalf("%d give back, %d would do: %+v", len(plan.Preempt), bits.OnesCount(uint(least)), plan.Preempt)
		}
		lost := lossOf(w, had, least)
		for _, v := range plan.Preempt {
			if !v.Loan || v.For != 50 || !w.Jobs[v.Job].Spec.Checkpoint.Set() || w.Jobs[v.Job].OnLoan() != "serve" {
				t.Fatalf("%+v", v)
			}
			lost -= lossOf(w, []cluster.JobID{v.Job}, 1)
		}
		if lost < 0 {
			t.Fatalf("%d more is lost than need be: %+v", -lost, plan.Preempt)
		}
		if least == 0 {
			return
		}
		if len(lentTo(w)) > len(had) {
			t.Fatal("something is lent while job 50 waits for what is given back")
		}
		asked(w, &plan)
		w.Advance(time.Second)
		gone(w)
		if passOver(w, s, parts); w.Jobs[50].Live() == nil {
			t.Fatalf("they left, and it waits: %v", w.Jobs[50].Reason)
		}
	})
}

// naiveLeast is the best of all sets of loans that leave a node with so many free cards, by
// bits; 0 where none does.
func naiveLeast(w *schedtest.World, loans []cluster.JobID, want int) (best int) {
	for set := 1; set < 1<<len(loans); set++ {
		may, free := true, map[cluster.NodeID]int{}
		for _, n := range w.Nodes[:len(w.Nodes)-1] {
			for _, g := range n.GPUs {
				on := w.OnGPU(g.ID)
				left := slices.DeleteFunc(slices.Clone(on), func(id cluster.JobID) bool { i := slices.Index(loans, id); return i >= 0 && set>>i&1 == 1 })
				if len(left) == 0 {
					free[n.ID]++
				}
			}
		}
		for i, id := range loans {
			may = may && (set>>i&1 == 0 || w.Jobs[id].Spec.Checkpoint.Set())
		}
		fits := false
		for _, n := range free {
			fits = fits || n >= want
		}
		if !may || !fits {
			continue
		}
		a, b := bits.OnesCount(uint(set)), bits.OnesCount(uint(best))
		if best == 0 || a < b || a == b && lossOf(w, loans, set) < lossOf(w, loans, best) {
			best = set
		}
	}
	return best
}

// lossOf is what a set of loans loses: the time to save, and a minute, on each card.
func lossOf(w *schedtest.World, loans []cluster.JobID, set int) (sum int64) {
	for i, id := range loans {
		if j := w.Jobs[id]; set>>i&1 == 1 {
			sum += (j.Spec.Checkpoint.Grace + time.Minute).Milliseconds() * int64(j.Spec.GPUs) * cluster.WholeGPU
		}
	}
	return sum
}
