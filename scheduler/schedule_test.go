package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/rules"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

const (
	a100  = "A100-SXM4-80GB" // sells 78.1 GiB
	small = "A100-SXM4-40GB" // sells 39.1 GiB
	t4    = "T4"             // sells 14.6 GiB
)

// show prints a plan in one line a decision, for tables.
func show(p *dispatch.Plan) []string {
	out := []string{}
	for _, st := range p.Starts {
		s := fmt.Sprintf("j%d on", st.Job)
		for _, g := range st.Berth.GPUs {
			if g.Share.Exclusive {
				s += fmt.Sprintf(" %s:whole", g.GPU)
			} else {
				s += fmt.Sprintf(" %s:%d/%d", g.GPU, g.Share.MemMiB, g.Share.Milli)
			}
		}
		if len(st.Berth.GPUs) == 0 {
			s += " " + string(st.Berth.Node)
		}
		if st.Overtook != "" {
			s += " (" + st.Overtook + ")"
		}
		out = append(out, s)
	}
	for _, m := range p.Moves {
		out = append(out, fmt.Sprintf("j%d waits at %s in %s: %s", m.Job, m.GPU, m.EstStart.Sub(Now), m.Reason))
	}
	for _, u := range p.Unplaced {
		out = append(out, fmt.Sprintf("j%d: %s", u.Job, u.Reason))
	}
	return out
}

// running lays a job on a GPU in w by a plan of its own.
func running(w *World, j *cluster.Job, gpu cluster.GPUID, share cluster.Share) {
	u, _ := w.Ledg.GPU(gpu)
	w.Submit(j)
	w.Apply(&dispatch.Plan{Starts: []dispatch.Start{{
		Job: j.ID, Attempt: 1, Overtook: "set up by the test",
		Berth:    cluster.Berth{Node: u.Node, GPUs: []cluster.GPUShare{{GPU: gpu, Share: share}}, CPUMilli: j.Spec.CPUMilli, MemMiB: j.Spec.MemMiB},
		Estimate: cluster.Estimate{GPUType: u.Type, Duration: j.Spec.Duration},
	}}})
}

func whole(mib int64) cluster.Share {
	return cluster.Share{MemMiB: mib, Milli: cluster.WholeGPU, Exclusive: true}
}

func TestSchedulePlaces(t *testing.T) {
	t.Parallel()
	h := time.Hour
	for _, c := range []struct {
		name  string
		nodes []*cluster.Node
		jobs  []*cluster.Job
		pol   func(*scheduler.Policy)
		want  []string
	}{
		{
			name:  "three share a card, the fourth takes the next",
			nodes: []*cluster.Node{Node("n1", 2, a100)},
			jobs:  []*cluster.Job{Job(1, Mem(1000), Util(100)), Job(2, Mem(1000), Util(100)), Job(3, Mem(1000), Util(100)), Job(4, Mem(1000), Util(100))},
			want:  []string{"j1 on n1-00:1000/100", "j2 on n1-00:1000/100", "j3 on n1-00:1000/100", "j4 on n1-01:1000/100"},
		},
		{
			name:  "the policy may lower the number of shares",
			nodes: []*cluster.Node{Node("n1", 2, a100)},
			jobs:  []*cluster.Job{Job(1, Mem(1000), Util(100)), Job(2, Mem(1000), Util(100)), Job(3, Mem(1000), Util(100))},
			pol:   func(p *scheduler.Policy) { p.MaxShares = 2 },
			want:  []string{"j1 on n1-00:1000/100", "j2 on n1-00:1000/100", "j3 on n1-01:1000/100"},
		},
		{
			name:  "larger go first, by the larger of memory and compute",
			nodes: []*cluster.Node{Node("n1", 2, a100)},
			jobs:  []*cluster.Job{Job(1, Mem(20000), Util(200)), Job(2, Mem(60000), Util(500)), Job(3, Mem(8000), Util(800)), Job(4, Mem(19000), Util(190))},
			want:  []string{"j3 on n1-00:8000/800", "j2 on n1-01:60000/500", "j1 on n1-00:20000/200", "j4 on n1-01:19000/190"},
		},
		{
			name:  "whole GPUs before shares, several before one",
			nodes: []*cluster.Node{Node("n1", 4, a100)},
			jobs:  []*cluster.Job{Job(1, Mem(79000), Util(900)), Job(2, Exclusive), Job(3, GPUs(2), Exclusive)},
			want:  []string{"j3 on n1-00:whole n1-01:whole", "j2 on n1-02:whole", "j1 on n1-03:79000/900"},
		},
		{
			name:  "whole GPUs come from the node with the fewest that are enough",
			nodes: []*cluster.Node{Node("n1", 4, a100), Node("n2", 2, a100), Node("n3", 1, a100)},
			jobs:  []*cluster.Job{Job(1, GPUs(2), Exclusive), Job(2, Exclusive)},
			want:  []string{"j1 on n2-00:whole n2-01:whole", "j2 on n3-00:whole"},
		},
		{
			name:  "nobody can predict it: alone on the card with the most memory",
			nodes: []*cluster.Node{Node("n1", 1, small), Node("n2", 1, a100)},
			jobs:  []*cluster.Job{Job(1)},
			want:  []string{"j1 on n2-00:whole"},
		},
		{
			name:  "a declared cap shares without any prediction, on the smallest that does",
			nodes: []*cluster.Node{Node("n1", 1, a100), Node("n2", 1, small)},
			jobs:  []*cluster.Job{Job(1, Mem(9000), Util(500))},
			want:  []string{"j1 on n2-00:9000/500"},
		},
		{
			name:  "a confident prediction shares",
			nodes: []*cluster.Node{Node("n1", 1, a100)},
			jobs:  []*cluster.Job{Job(1, Predict(a100, 9000, 400, h)), Job(2, Predict(a100, 8000, 400, h))},
			want:  []string{"j1 on n1-00:9000/400", "j2 on n1-00:8000/400"},
		},
		{
			name:  "cards without a cap are never shared",
			nodes: []*cluster.Node{Node("n1", 2, a100, CapMode("none"))},
			jobs:  []*cluster.Job{Job(1, Mem(1000), Util(1)), Job(2, Mem(1000), Util(1))},
			want:  []string{"j1 on n1-00:whole", "j2 on n1-01:whole"},
		},
		{
			name:  "slot mode gives every job a card",
			nodes: []*cluster.Node{Node("n1", 2, a100)},
			jobs:  []*cluster.Job{Job(1, Mem(1000), Util(1)), Job(2, Mem(1000), Util(1))},
			pol:   func(p *scheduler.Policy) { p.Mode = scheduler.ModeSlot },
			want:  []string{"j1 on n1-00:whole", "j2 on n1-01:whole"},
		},
		{
			name:  "the much faster type is taken",
			nodes: []*cluster.Node{Node("n1", 1, small), Node("n2", 1, a100)},
			jobs:  []*cluster.Job{Job(1, Predict(small, 1000, 100, 2*h), Predict(a100, 1000, 100, h))},
			want:  []string{"j1 on n2-00:1000/100"},
		},
		{
			name:  "the slightly faster type is left alone",
			nodes: []*cluster.Node{Node("n1", 1, small), Node("n2", 1, a100)},
			jobs:  []*cluster.Job{Job(1, Predict(small, 1000, 100, 110*time.Minute), Predict(a100, 1000, 100, 100*time.Minute))},
			want:  []string{"j1 on n1-00:1000/100"},
		},
		{
			name:  "a wanted type and a wanted node are kept",
			nodes: []*cluster.Node{Node("n1", 1, small), Node("n2", 1, a100), Node("n3", 1, a100)},
			jobs:  []*cluster.Job{Job(1, Type(a100), Mem(100), Util(10)), Job(2, On("n3"), Mem(90), Util(9)), Job(3, On("n3"), Exclusive)},
			want:  []string{"j3 on n3-00:whole", "j1 on n2-00:100/10", "j2 waits at n3-00 in 1h0m0s: GPUMemory", "j2: GPUMemory: A100-SXM4-80GB: at most 0 MiB free on one GPU, needs 90 MiB"},
		},
		{
			name:  "an empty card of the wanted node, though the next node's is in use",
			nodes: []*cluster.Node{Node("n1", 1, a100), Node("n2", 1, a100)},
			jobs:  []*cluster.Job{Job(1, On("n2"), Mem(200), Util(20)), Job(2, On("n1"), Mem(100), Util(10))},
			want:  []string{"j1 on n2-00:200/20", "j2 on n1-00:100/10"},
		},
		{
			name:  "what is left after others have started is what is told",
			nodes: []*cluster.Node{Node("n1", 4, a100)},
			jobs:  []*cluster.Job{Job(1, GPUs(3), Exclusive), Job(2, GPUs(2), Exclusive)},
			want: []string{
				"j1 on n1-00:whole n1-01:whole n1-02:whole",
				"j2 waits at n1-03 in 1h0m0s: GPUCount", "j2: GPUCount: A100-SXM4-80GB: 1 GPU free on one node, needs 2",
			},
		},
		{
			name:  "cores decide where the card would fit",
			nodes: []*cluster.Node{Node("n1", 1, a100, Host(2000, 1<<20)), Node("n2", 1, a100)},
			jobs:  []*cluster.Job{Job(1, Mem(100), Util(10), Cores(4000))},
			want:  []string{"j1 on n2-00:100/10"},
		},
		{
			name:  "host memory decides too",
			nodes: []*cluster.Node{Node("n1", 1, a100, Host(64000, 1000)), Node("n2", 1, a100)},
			jobs:  []*cluster.Job{Job(1, Mem(100), Util(10), HostMem(2000))},
			want:  []string{"j1 on n2-00:100/10"},
		},
		{
			name:  "jobs without GPUs prefer nodes without",
			nodes: []*cluster.Node{Node("a", 1, a100), Node("b", 0, "", Host(1000, 4096))},
			jobs:  []*cluster.Job{Job(1, GPUs(0)), Job(2, GPUs(0))},
			want:  []string{"j1 on b", "j2 on a"},
		},
		{
			name:  "several declared shares lie on one node",
			nodes: []*cluster.Node{Node("n1", 1, a100), Node("n2", 2, a100)},
			jobs:  []*cluster.Job{Job(1, GPUs(2), Mem(1000), Util(100))},
			want:  []string{"j1 on n2-00:1000/100 n2-01:1000/100"},
		},
		{
			name:  "drained and silent nodes take nobody",
			nodes: []*cluster.Node{Node("n1", 1, a100, Drained), Node("n2", 1, a100, Silent), Node("n3", 1, a100)},
			jobs:  []*cluster.Job{Job(1, Mem(100), Util(10))},
			want:  []string{"j1 on n3-00:100/10"},
		},
		{
			name:  "what ran out of memory gets more, or the card",
			nodes: []*cluster.Node{Node("n1", 2, a100)},
			jobs: []*cluster.Job{
				Job(1, Mem(1000), Util(100), func(j *cluster.Job) { j.MinGPUMemMiB = 5000 }),
				Job(2, Mem(1000), Util(100), func(j *cluster.Job) { j.NeedWhole = true }),
			},
			want: []string{"j2 on n1-00:whole", "j1 on n1-01:5000/100"},
		},
		{
			name:  "under overcommit jobs join until what is predicted adds up to it",
			nodes: []*cluster.Node{Node("n1", 1, a100)},
			jobs:  []*cluster.Job{Job(1, Predict(a100, 9000, 650, time.Hour)), Job(2, Predict(a100, 9000, 600, time.Hour)), Job(3, Predict(a100, 9000, 10, time.Hour))},
			pol:   func(p *scheduler.Policy) { p.OvercommitMilli, p.LookAhead = 1250, 0 },
			want: []string{
				"j1 on n1-00:9000/520", "j2 on n1-00:9000/480",
				"j3 waits at n1-00 in 1h0m0s: GPUCompute", "j3: GPUCompute: A100-SXM4-80GB: at most 0 % of one GPU free, needs 0.8 %",
			},
		},
		{
			name:  "under overcommit too what was declared is kept",
			nodes: []*cluster.Node{Node("n1", 1, a100)},
			jobs:  []*cluster.Job{Job(1, Mem(9000), Util(600)), Job(2, Predict(a100, 9000, 501, time.Hour))},
			pol:   func(p *scheduler.Policy) { p.OvercommitMilli = 1250 },
			want: []string{
				"j1 on n1-00:9000/600",
				"j2 waits at n1-00 in 36m0s: GPUCompute", "j2: GPUCompute: A100-SXM4-80GB: at most 40 % of one GPU free, needs 40.1 %",
			},
		},
		{
			name:  "nothing is overcommitted while there are empty cards for all",
			nodes: []*cluster.Node{Node("n1", 3, a100)},
			jobs:  []*cluster.Job{Job(1, Predict(a100, 9000, 650, time.Hour)), Job(2, Predict(a100, 9000, 600, time.Hour)), Job(3, Predict(a100, 9000, 350, time.Hour))},
			pol:   func(p *scheduler.Policy) { p.OvercommitMilli = 1250 },
			want:  []string{"j1 on n1-00:9000/520", "j2 on n1-01:9000/480", "j3 on n1-00:9000/280"},
		},
		{
			name:  "jobs under cancellation are left alone",
			nodes: []*cluster.Node{Node("n1", 1, a100)},
			jobs:  []*cluster.Job{Job(1, func(j *cluster.Job) { j.Cancel = &cluster.CancelRequest{} })},
			want:  []string{},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pol := scheduler.Default()
			if c.pol != nil {
				c.pol(&pol)
			}
			w := NewWorld(c.nodes, c.jobs...)
			p := scheduler.Schedule(w.Snapshot(), pol)
			if d := cmp.Diff(c.want, show(&p)); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
			w.Apply(&p)
			if err := w.Check(); err != nil || len(w.Rejected) > 0 {
				t.Errorf("applied: %v, rejected %v", err, w.Rejected)
			}
		})
	}
}

func TestScheduleReasons(t *testing.T) {
	t.Parallel()
	full := func(n *cluster.Node) *World {
		w := NewWorld([]*cluster.Node{n})
		running(w, Job(90, Lasts(time.Hour)), GPU(n.ID, 0), cluster.Share{MemMiB: 70000, Milli: 500})
		return w
	}
	for _, c := range []struct {
		name string
		w    *World
		job  *cluster.Job
		want string
	}{
		{"no node", NewWorld(nil), Job(1), "NoNodes: no node is registered"},
		{"no node for a job without GPUs", NewWorld(nil), Job(1, GPUs(0)), "NoNodes: no node is registered"},
		{"all drained", NewWorld([]*cluster.Node{Node("n1", 1, a100, Drained)}), Job(1), "ReqNodeNotAvail: every node with GPUs is drained or silent"},
		{"none has a GPU", NewWorld([]*cluster.Node{Node("n1", 0, ""), Node("n2", 0, "", Drained)}), Job(1), "NeverFits: no node has a GPU"},
		{"type", full(Node("n1", 1, a100)), Job(1, Type(t4)), "GPUType: wants T4, this is A100-SXM4-80GB"},
		{"too large", full(Node("n1", 1, a100)), Job(1, Mem(90000)), "NeverFits: needs 87.9 GiB, A100-SXM4-80GB sells 78.1 GiB"},
		{"predicted too large", full(Node("n1", 1, a100)), Job(1, Predict(a100, 90000, 1, time.Hour)), "NeverFits: is predicted to need 87.9 GiB, A100-SXM4-80GB sells 78.1 GiB; declare its memory to overrule the prediction"},
		{"memory", full(Node("n1", 1, a100)), Job(1, Mem(20000), Util(100)), "GPUMemory: A100-SXM4-80GB: at most 9.8 GiB free on one GPU, needs 19.5 GiB"},
		{"compute", full(Node("n1", 1, a100)), Job(1, Mem(1000), Util(600)), "GPUCompute: A100-SXM4-80GB: at most 50 % of one GPU free, needs 60 %"},
		{"alone", full(Node("n1", 1, a100)), Job(1, Exclusive), "WholeGPUBusy: A100-SXM4-80GB: no GPU is empty, needs one alone"},
		{"count", full(Node("n1", 2, a100)), Job(1, GPUs(2)), "GPUCount: A100-SXM4-80GB: 1 GPU free on one node, needs 2"},
		{"cores", full(Node("n1", 1, a100, Host(2000, 1<<20))), Job(1, Mem(1000), Util(100), Cores(2000)), "CPU: A100-SXM4-80GB: at most 1 core free beside a GPU with room, needs 2 cores"},
		{"host memory", full(Node("n1", 1, a100, Host(9000, 4096))), Job(1, Mem(1000), Util(100), HostMem(4096)), "HostMemory: A100-SXM4-80GB: at most 3.0 GiB of host memory free beside a GPU with room, needs 4.0 GiB"},
		{"cores without GPUs", full(Node("n1", 1, a100, Host(2000, 1<<20))), Job(1, GPUs(0), Cores(2000)), "CPU: at most 1 core free on one node, needs 2 cores"},
		{"host memory without GPUs", full(Node("n1", 1, a100, Host(9000, 4096))), Job(1, GPUs(0), HostMem(4096)), "HostMemory: at most 3.0 GiB of host memory free on one node, needs 4.0 GiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.w.Submit(c.job)
			p := scheduler.Schedule(c.w.Snapshot(), scheduler.Default())
			if len(p.Starts) != 0 || len(p.Unplaced) != 1 {
				t.Fatalf("plan: %q, want one job left over", show(&p))
			}
			if d := cmp.Diff(c.want, p.Unplaced[0].Reason.String()); d != "" {
				t.Errorf("reason (-want +got):\n%s", d)
			}
		})
	}
}

func TestScheduleSlotsReason(t *testing.T) {
	t.Parallel()
	w := NewWorld([]*cluster.Node{Node("n1", 1, a100)})
	for id := cluster.JobID(1); id <= 4; id++ {
		w.Submit(Job(id, Mem(100), Util(10), Lasts(time.Minute)))
	}
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	if len(p.Starts) != 3 || len(p.Unplaced) != 1 || p.Unplaced[0].Reason.Code != cluster.ReasonGPUSlots {
		t.Errorf("plan: %q, want the fourth left over for want of slots", show(&p))
	}
}

func TestReasonsInWordsAreBounded(t *testing.T) {
	t.Parallel()
	w := NewWorld([]*cluster.Node{Node("n1", 1, a100)})
	running(w, Job(1, Lasts(time.Hour)), "n1-00", whole(80000))
	for id := cluster.JobID(2); id < 40; id++ {
		w.Submit(Job(id, Mem(1000*int64(id)), Util(10)))
	}
	pol := scheduler.Default()
	pol.MaxReasons = 5
	p := scheduler.Schedule(w.Snapshot(), pol)
	words := 0
	for _, u := range p.Unplaced {
		if u.Reason.Code != cluster.ReasonGPUMem {
			t.Errorf("job %d: code %q, want GPUMemory", u.Job, u.Reason.Code)
		}
		if u.Reason.Detail != "" {
			words++
		}
	}
	if len(p.Unplaced) != 38 || words != 5 {
		t.Errorf("%d unplaced, %d in words, want 38 and 5", len(p.Unplaced), words)
	}
}

func TestShareOn(t *testing.T) {
	t.Parallel()
	card := Node("n", 1, a100).GPUs[0]
	uncapped := Node("n", 1, a100, CapMode("none")).GPUs[0]
	unsure := func(j *cluster.Job) { j.Estimates[0].ConfidenceMilli = 100 }
	wide := func(j *cluster.Job) { j.Estimates[0].GPUMemP95MiB = 85000 }
	for _, c := range []struct {
		name string
		job  *cluster.Job
		gpu  cluster.GPU
		want string
	}{
		{"declared", Job(1, Mem(5000), Util(300)), card, "5000/300"},
		{"declared memory, unknown compute", Job(1, Mem(5000)), card, "5000/1000"},
		{"declared beats predicted", Job(1, Mem(5000), Predict(a100, 9000, 200, 1)), card, "5000/200"},
		{"predicted", Job(1, Predict(a100, 9000, 200, 1)), card, "9000/200"},
		{"predicted below the observed", Job(1, Predict(a100, 9000, 200, 1), func(j *cluster.Job) { j.MinGPUMemMiB = 12000 }), card, "12000/200"},
		{"unsure", Job(1, Predict(a100, 9000, 200, 1), unsure), card, "whole"},
		{"unsure but declared", Job(1, Mem(5000), Predict(a100, 9000, 200, 1), unsure), card, "5000/200"},
		{"unsure and predicted too large", Job(1, Predict(a100, 90000, 200, 1), unsure), card, "whole"},
		{"the margin alone is over the card", Job(1, Predict(a100, 70000, 200, 1), wide), card, "whole"},
		{"several without declaring", Job(1, GPUs(2), Predict(a100, 9000, 200, 1)), card, "whole"},
		{"several declared", Job(1, GPUs(2), Mem(700), Predict(a100, 9000, 200, 1)), card, "700/200"},
		{"no cap", Job(1, Mem(5000), Util(300)), uncapped, "whole"},
		{"all of it", Job(1, Mem(80000), Util(300)), card, "whole"},
		{"too large", Job(1, Mem(80001)), card, "NeverFits: needs 78.1 GiB, A100-SXM4-80GB sells 78.1 GiB"},
		{"observed more than there is", Job(1, func(j *cluster.Job) { j.MinGPUMemMiB = 90000 }), card, "whole"},
		{"other type", Job(1, Type(t4)), card, "GPUType: wants T4, this is A100-SXM4-80GB"},
		{"sells nothing", Job(1), cluster.GPU{Type: "x"}, "NeverFits: x sells no memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, e, r := rules.ShareOn(c.job, &c.gpu, scheduler.Default())
			got := r.String()
			switch {
			case r.Code != "":
			case s.Exclusive:
				got = "whole"
				if s.MemMiB != c.gpu.SellableMiB || s.Milli != cluster.WholeGPU {
					t.Errorf("exclusive share is %+v, want all of the card", s)
				}
			default:
				got = fmt.Sprintf("%d/%d", s.MemMiB, s.Milli)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if r.Code == "" && e.GPUType != c.gpu.Type {
				t.Errorf("estimate for %q, want %q", e.GPUType, c.gpu.Type)
			}
		})
	}
}

func TestNeverFits(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{Node("n1", 4, small), Node("n3", 2, a100, Drained), Node("c1", 0, "", Host(128_000, 1<<20))}
	for _, c := range []struct {
		name  string
		nodes []*cluster.Node
		job   *cluster.Job
		want  string // "" for nil
	}{
		{"no nodes", nil, Job(1, Mem(1<<22)), ""},
		{"fits", nodes, Job(1, Mem(30000)), ""},
		{"fits a drained node", nodes, Job(1, Mem(80000)), ""},
		{"four on one node", nodes, Job(1, GPUs(4), Mem(30000)), ""},
		{"nobody knows it", nodes, Job(1), ""},
		{"no GPU", nodes, Job(1, GPUs(0), Cores(128_000)), ""},
		{"too much memory", nodes, Job(1, Mem(90000)), "never satisfiable: 87.9 GiB of GPU memory; the largest GPU sells 78.1 GiB (A100-SXM4-80GB, node n3)"},
		{"four large", nodes, Job(1, GPUs(4), Mem(50000)), "never satisfiable: 4 GPUs with 48.8 GiB on one node; the largest is node n3 with 2 × A100-SXM4-80GB"},
		{"too many", nodes, Job(1, GPUs(8)), "never satisfiable: 8 GPUs on one node; the largest is node n1 with 4 × A100-SXM4-40GB"},
		{"too many of a type", nodes, Job(1, GPUs(3), Type(a100)), "never satisfiable: 3 GPUs on one node; the largest is node n3 with 2 × A100-SXM4-80GB"},
		{"type", nodes, Job(1, Type(t4)), "never satisfiable: no GPU of type T4; the types are A100-SXM4-40GB, A100-SXM4-80GB"},
		{"type on a node", nodes, Job(1, Type(a100), On("n1")), "never satisfiable: no GPU of type A100-SXM4-80GB on node n1; the types are A100-SXM4-40GB"},
		{"predicted", []*cluster.Node{Node("n1", 1, t4)}, Job(1, Predict(t4, 16000, 100, 1)), "never satisfiable: 15.6 GiB of GPU memory (predicted; declare the memory to overrule it); the largest GPU sells 14.6 GiB (T4, node n1)"},
		{"ran out of more memory than there is", nodes, Job(1, func(j *cluster.Job) { j.MinGPUMemMiB = 90000 }), ""},
		{"nothing to sell", []*cluster.Node{Node("n1", 1, t4, func(n *cluster.Node) { n.GPUs[0].SellableMiB = 0 })}, Job(1), "never satisfiable: no GPU has memory to give away"},
		{"unknown node", nodes, Job(1, On("n9")), "never satisfiable: node n9 is not registered"},
		{"node without GPUs", nodes, Job(1, On("c1")), "never satisfiable: node c1 has no GPU"},
		{"no GPUs at all", []*cluster.Node{Node("c1", 0, "")}, Job(1), "never satisfiable: no node has a GPU"},
		{"cores", nodes, Job(1, GPUs(0), Cores(256_000)), "never satisfiable: 256 cores; the most is node c1 with 128 cores"},
		{"cores beside a GPU", nodes, Job(1, Cores(128_000)), "never satisfiable: 128 cores beside 1 GPU; the most is node n1 with 64 cores"},
		{"host memory", nodes, Job(1, GPUs(0), HostMem(2<<20)), "never satisfiable: 2.0 TiB of host memory beside 1 core; the most is node c1 with 1.0 TiB"},
		{"host memory beside a GPU", nodes, Job(1, HostMem(1<<20)), "never satisfiable: 1.0 TiB of host memory beside 1 GPU and 1 core; the most is node n1 with 512.0 GiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := rules.NeverFits(c.nodes, c.job, scheduler.Default())
			switch {
			case err == nil && c.want != "":
				t.Errorf("fits, want %q", c.want)
			case err != nil && (c.want == "" || err.Msg != c.want || err.Code != cluster.CodeInvalid):
				t.Errorf("got %v %q, want %q", err.Code, err.Msg, c.want)
			}
		})
	}
}
