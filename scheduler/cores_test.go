package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/rules"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// orCores lets a job run on eight cores, at 48 W and with 30,000 MiB, for so
// long as predicted.
func orCores(d time.Duration) JobOption {
	return func(j *cluster.Job) {
		j.Spec.OrCPU, j.Spec.CPUMilli = true, 8000
		j.Estimates = append(j.Estimates, cluster.Estimate{
			GPUType: cluster.CPUType, Duration: d, HostMemMiB: 30_000, CPUMilli: 8000, PowerW: 48, ConfidenceMilli: 300, Source: "graph",
		})
	}
}

// hourOnA100 takes 90 % of an A100 for an hour: 0.40 kWh, 3.60 at 4.00 an hour.
func hourOnA100(opts ...JobOption) *cluster.Job {
	watts := func(j *cluster.Job) { j.Estimates[0].PowerW = 400 }
	return Job(2, append([]JobOption{Predict(a100, 20000, 900, time.Hour), watts}, opts...)...)
}

// coresWorld has one A100, busy for so long, and beside it a node of 64 cores.
func coresWorld(busy time.Duration, j *cluster.Job, opts ...NodeOption) *World {
	w := NewWorld([]*cluster.Node{Node("n1", 1, a100, opts...), Node("n2", 0, "")})
	if busy > 0 {
		w.Submit(Job(1, Exclusive, Lasts(busy)))
		p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		w.Apply(&p)
	}
	w.Submit(j)
	return w
}

func coresPriced(perCoreHour int64) scheduler.Policy {
	pol := priced()
	if perCoreHour > 0 {
		pol.Prices.PerHourMilli[cluster.CPUType] = perCoreHour
	}
	return pol
}

func TestCoresByObjective(t *testing.T) {
	t.Parallel()
	h := time.Hour
	const onGPU, onCores, waits = "n1", "n2", ""
	for _, c := range []struct {
		name  string
		goal  cluster.Objective
		busy  time.Duration
		cores time.Duration
		price int64 // of a core-hour, in thousandths
		want  string
		why   string
	}{
		{"ends before the GPU is free", cluster.ObjectiveLatency, 10 * h, 5 * h, 0, onCores,
			"8 cores in place of 1 GPU, the best for latency (~5 h, 48 W, 0.24 kWh); on A100-SXM4-80GB, the wait included, ~11 h, 400 W"},
		{"ends after a wait and a run", cluster.ObjectiveLatency, 10 * h, 12 * h, 0, waits, ""},
		{"the GPU is free and faster", cluster.ObjectiveLatency, 0, 2 * h, 0, onGPU, ""},
		{"faster than a free GPU", cluster.ObjectiveLatency, 0, h / 2, 0, onCores, "; on A100-SXM4-80GB ~60 min, 400 W, 0.40 kWh"},
		{"nobody knows how long", cluster.ObjectiveLatency, 10 * h, 0, 0, waits, ""},
		{"less energy than a free GPU", cluster.ObjectiveEnergy, 0, 5 * h, 0, onCores, "0.24 kWh"},
		{"more energy", cluster.ObjectiveEnergy, 0, 10 * h, 0, onGPU, ""},
		{"more energy than to wait", cluster.ObjectiveEnergy, 10 * h, 9 * h, 0, waits, ""},
		{"cheaper", cluster.ObjectiveCost, 0, 5 * h, 50, onCores, "price 2.00"},
		{"dearer", cluster.ObjectiveCost, 0, 5 * h, 100, onGPU, ""},
		{"dearer than to wait", cluster.ObjectiveCost, 10 * h, 5 * h, 100, waits, ""},
		{"no price counts as the highest", cluster.ObjectiveCost, 0, 5 * h, 0, onGPU, ""},
		{"balanced with a long wait", cluster.ObjectiveBalanced, 10 * h, 5 * h, 50, onCores, "price 2.00"},
		{"balanced with none", cluster.ObjectiveBalanced, 0, 5 * h, 50, onGPU, ""},
		{"an eighth of a node for less than 90 % of a card", cluster.ObjectiveThroughput, 0, 5 * h, 0, onCores, ""},
		{"and for more", cluster.ObjectiveThroughput, 0, 8 * h, 0, onGPU, ""},
		{"no objective", "", 10 * h, h / 2, 0, waits, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, pol := coresWorld(c.busy, hourOnA100(orCores(c.cores), goal(c.goal))), coresPriced(c.price)
			p := scheduler.Schedule(w.Snapshot(), pol)
			got, why := waits, ""
			if len(p.Starts) > 0 {
				st := p.Starts[0]
				got, why = string(st.Berth.Node), st.Why
				if on := got == onCores; on != (len(st.Berth.GPUs) == 0) || on != (st.Estimate.GPUType == cluster.CPUType) || on != (st.Berth.MemMiB == 30_000) {
					t.Errorf("berth %+v by %+v", st.Berth, st.Estimate)
				}
			}
			if got != c.want || !strings.Contains(why, c.why) {
				t.Errorf("on %q because %q, want %q because %q", got, why, c.want, c.why)
			}
			w.Apply(&p)
			if err := w.Check(); err != nil || len(w.Rejected) > 0 {
				t.Errorf("%v, rejected %v", err, w.Rejected)
			}
		})
	}
}

// TestCoresKeepToLimits: what speaks against cores whatever the objective says,
// and how it is explained.
func TestCoresKeepToLimits(t *testing.T) {
	t.Parallel()
	h := time.Hour
	latency := goal(cluster.ObjectiveLatency)
	for _, c := range []struct {
		name  string
		opts  []JobOption
		nodes []NodeOption
		want  string // node of the start
		why   string // of what Explain says
	}{
		{"it may not", []JobOption{latency, func(j *cluster.Job) { j.Spec.OrCPU = false }}, nil, "", ""},
		{"it may", []JobOption{latency}, nil, "n2", ""},
		{"no objective", nil, nil, "", "CPU: on cores: without an objective"},
		{"time limit", []JobOption{latency, Limit(4 * h)}, nil, "", "~5 h on 8 cores, more than its time limit"},
		{"deadline", []JobOption{latency, func(j *cluster.Job) { j.Spec.Deadline = Now.Add(4 * h) }}, nil, "", "would miss its deadline"},
		{"power", []JobOption{latency, func(j *cluster.Job) { j.Spec.MaxPowerW = 40 }}, nil, "", "48 W on 8 cores, at most 40 W are allowed (--max-power)"},
		{"price", []JobOption{latency, func(j *cluster.Job) { j.Spec.MaxCostMilli = 1000 }}, nil, "", "price 2.00 on 8 cores, a price of at most 1 is allowed (--max-cost)"},
		{"another node is asked for", []JobOption{latency, On("n1")}, nil, "n1", ""},
		{"more memory than asked for is reserved", []JobOption{latency, HostMem(100)}, nil, "n2", ""},
		{"too many cores", []JobOption{latency, Cores(65_000)}, nil, "", "no node has 65 cores"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := hourOnA100(append([]JobOption{orCores(5 * h)}, c.opts...)...)
			w, pol := coresWorld(10*h, j, c.nodes...), coresPriced(50)
			p := scheduler.Schedule(w.Snapshot(), pol)
			got := ""
			if len(p.Starts) > 0 {
				if got = string(p.Starts[0].Berth.Node); p.Starts[0].Berth.MemMiB != 30_000 || len(p.Starts[0].Berth.GPUs) > 0 {
					t.Errorf("berth %+v", p.Starts[0].Berth)
				}
			}
			all := ""
			for _, e := range scheduler.Explain(w.Snapshot(), j, pol) {
				all += e.Reason.String() + "\n"
			}
			if got != c.want || !strings.Contains(all, c.why) {
				t.Errorf("on %q, want %q; explained by\n%swant %q", got, c.want, all, c.why)
			}
		})
	}
}

// TestCoresWhereNoGPUCouldEver: then cores will do without an objective; a GPU
// that is only away may come back.
func TestCoresWhereNoGPUCouldEver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		nodes []*cluster.Node
		job   *cluster.Job
		want  cluster.NodeID
		never string
	}{
		{"too small a card", []*cluster.Node{Node("n1", 1, t4), Node("n2", 0, "")}, Job(2, Predict(t4, 20000, 900, time.Hour), orCores(0)), "n2", ""},
		{"too few cards", []*cluster.Node{Node("n1", 1, a100), Node("n2", 0, "")}, hourOnA100(GPUs(2), orCores(0)), "n2", ""},
		{"no cards", []*cluster.Node{Node("n2", 0, "")}, hourOnA100(orCores(0)), "n2", ""},
		{"cards out of service", []*cluster.Node{Node("n1", 1, a100, Drained), Node("n2", 0, "")}, hourOnA100(orCores(0)), "", ""},
		{"neither", []*cluster.Node{Node("n1", 1, t4, Host(64_000, 20_000))}, Job(2, Predict(t4, 20000, 900, time.Hour), orCores(0)), "",
			"19.5 GiB of GPU memory (predicted; declare the memory to overrule it); the largest GPU sells 14.6 GiB (T4, node n1); and on cores: 29.3 GiB of host memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, pol := NewWorld(c.nodes, c.job), scheduler.Default()
			p, never := scheduler.Schedule(w.Snapshot(), pol), rules.NeverFits(c.nodes, c.job, pol)
			got := cluster.NodeID("")
			if len(p.Starts) > 0 {
				got = p.Starts[0].Berth.Node
				if st := p.Starts[0]; len(st.Berth.GPUs) > 0 || st.Berth.MemMiB != 30_000 || !strings.Contains(st.Why, "no GPU could ever run it") {
					t.Errorf("start %+v", st)
				}
			}
			if got != c.want || (never != nil) != (c.never != "") || never != nil && !strings.Contains(never.Msg, c.never) {
				t.Errorf("on %q, never: %v; want %q, %q", got, never, c.want, c.never)
			}
			if ex := scheduler.Explain(w.Snapshot(), c.job, pol); len(ex) == 0 {
				t.Error("nothing explains it")
			}
		})
	}
}

// TestCoresTakeNothingFromIdleGPUs: who could have a GPU leaves the cores of a
// node to the jobs that need its idle ones.
func TestCoresTakeNothingFromIdleGPUs(t *testing.T) {
	t.Parallel()
	typical := func(id cluster.JobID) *cluster.Job {
		return Job(id, Type(t4), Mem(14000), Util(900), Cores(8000), HostMem(8000))
	}
	j := hourOnA100(orCores(10*time.Minute), goal(cluster.ObjectiveLatency))
	w := NewWorld([]*cluster.Node{Node("n1", 2, t4, Host(16_000, 512<<10)), Node("n2", 1, a100, Host(8000, 512<<10))})
	w.Submit(typical(1))
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	w.Apply(&p)
	w.Submit(Job(3, Type(a100), Exclusive, Lasts(time.Hour), Cores(1000)))
	p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
	w.Apply(&p)
	w.Submit(j)
	w.Submit(typical(4))
	p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
	if len(p.Starts) != 1 || p.Starts[0].Job != 4 || p.Starts[0].Berth.Node != "n1" {
		t.Errorf("starts %+v, want job 4 on its T4", p.Starts)
	}
}

// TestCoresHold: whatever is asked for, all starts fit; only who may goes
// without GPUs, within its time and limits; and a second pass has nothing to do.
func TestCoresHold(t *testing.T) {
	t.Parallel()
	without := 0
	rapid.Check(t, func(t *rapid.T) {
		w, pol := drawWorld(t, true), coresPriced(50)
		if rapid.Bool().Draw(t, "plain node") {
			w = NewWorld(append(w.Nodes, Node("plain", 0, "")), w.Snapshot().Waiting...)
		}
		for _, j := range w.Snapshot().Waiting {
			c, spec := j.Clone(), *j.Spec
			if spec.GPUs > 0 && rapid.Bool().Draw(t, "or cpu") {
				spec.OrCPU = true
				spec.Objective = rapid.SampledFrom(append(cluster.Objectives(), "")).Draw(t, "objective")
				if rapid.Bool().Draw(t, "limited") {
					spec.MaxCostMilli = rapid.Int64Range(1, 6000).Draw(t, "price")
				}
				c.Estimates = append(c.Estimates[:len(c.Estimates):len(c.Estimates)], cluster.Estimate{
					GPUType: cluster.CPUType, Duration: time.Duration(rapid.Int64Range(0, 1000).Draw(t, "minutes")) * time.Minute,
					HostMemMiB: rapid.Int64Range(0, 1<<20).Draw(t, "memory"), PowerW: 6, Source: "graph",
				})
			}
			c.Spec = &spec
			w.Jobs[j.ID] = c
		}
		s := w.Snapshot()
		p := scheduler.Schedule(s, pol)
		if q := scheduler.Schedule(s, pol); len(q.Starts) != len(p.Starts) {
			t.Fatal("equal arguments give another plan")
		}
		for _, st := range p.Starts {
			j := w.Jobs[st.Job]
			if len(st.Berth.GPUs) == j.Spec.GPUs {
				continue
			}
			without++
			e, _ := cluster.EstimateFor(j.Estimates, cluster.CPUType)
			switch {
			case len(st.Berth.GPUs) > 0 || !j.Spec.OrCPU:
				t.Fatalf("job %d gets %d GPUs", j.ID, len(st.Berth.GPUs))
			case st.Estimate.GPUType != cluster.CPUType || st.Berth.MemMiB < e.HostMemMiB:
				t.Fatalf("job %d has %d MiB by %+v", j.ID, st.Berth.MemMiB, st.Estimate)
			}
			ever := rules.NeverFits(w.Nodes, withGPUsOnly(j), pol) == nil
			if ever && (j.Spec.Objective == "" || e.Duration == 0 || j.Spec.TimeLimit > 0 && e.Duration > j.Spec.TimeLimit) {
				t.Fatalf("job %d (%+v) goes without GPUs because %q", j.ID, j.Spec, st.Why)
			}
			if price := e.Duration.Hours() * float64(st.Berth.CPUMilli) / 1000 * 50; j.Spec.MaxCostMilli > 0 && price > float64(j.Spec.MaxCostMilli)+2 {
				t.Fatalf("job %d costs %.0f, at most %d was allowed", j.ID, price, j.Spec.MaxCostMilli)
			}
		}
		for _, u := range p.Unplaced {
			if scheduler.Explain(s, w.Jobs[u.Job], pol) == nil {
				t.Fatalf("nothing explains job %d", u.Job)
			}
		}
		apply(t, w, p, pol)
	})
	if without == 0 {
		t.Error("nobody went without GPUs: the test tests nothing")
	}
}

func withGPUsOnly(j *cluster.Job) *cluster.Job {
	c, spec := j.Clone(), *j.Spec
	spec.OrCPU = false
	c.Spec = &spec
	return c
}
