package mig

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// a100 returns a GPU of 80 GB in MIG mode with instances such as "3g.40gb@4".
func a100(uuid string, instances ...string) Card {
	c := Card{Node: "n1", UUID: uuid, Type: "A100", Profiles: []Profile{
		{"1g.10gb", 9_000, 1, 1, []int{0, 1, 2, 3, 4, 5, 6}}, {"1g.20gb", 19_000, 1, 2, []int{0, 2, 4, 6}}, {"2g.20gb", 19_000, 2, 2, []int{0, 2, 4}},
		{"3g.40gb", 39_000, 3, 4, []int{0, 4}}, {"4g.40gb", 39_000, 4, 4, []int{0}}, {"7g.80gb", 79_000, 7, 8, []int{0}},
	}}
	for _, text := range instances {
		in := Instance{ID: cluster.GPUID(uuid + "/" + text)}
		at := strings.IndexByte(text, '@')
		in.Profile = text[:at]
		_, _ = fmt.Sscan(text[at+1:], &in.Start)
		in.Size = c.profile(in.Profile).Size
		c.Instances = append(c.Instances, in)
	}
	return c
}

// ledgerOf returns a ledger of the cards' instances, of which busy ones hold a job.
func ledgerOf(t interface{ Fatal(...any) }, cards []Card, busy ...string) *dispatch.Ledger {
	n := &cluster.Node{ID: "n1", State: cluster.NodeReady, CPUMilli: 1 << 20, MemMiB: 1 << 20}
	for i := range cards {
		for _, in := range cards[i].Instances {
			g := cards[i].gpu(cards[i].profile(in.Profile))
			g.ID = in.ID
			n.GPUs = append(n.GPUs, g)
		}
	}
	l := dispatch.NewLedger([]*cluster.Node{n})
	for _, id := range busy {
		if !l.Take(&cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{{GPU: cluster.GPUID(id), Share: cluster.Share{MemMiB: 1, Milli: cluster.WholeGPU, Exclusive: true}}}}) {
			t.Fatal("cannot hold ", id)
		}
	}
	return l
}

func wants(id int, mem, milli int64, gpuType string) *cluster.Job {
	return &cluster.Job{ID: cluster.JobID(id), Spec: &cluster.Spec{GPUs: 1, GPUMemMiB: mem, GPUMilli: milli, GPUType: gpuType}}
}

func shown(c *Cut) string {
	if c == nil {
		return "-"
	}
	var drop, parts []string
	for _, id := range c.Drop {
		drop = append(drop, string(id))
	}
	for _, in := range c.Make {
		parts = append(parts, fmt.Sprintf("%s@%d", in.Profile, in.Start))
	}
	return fmt.Sprintf("%s -%v +%v for %v", c.Card.UUID, drop, parts, c.For)
}

func TestPlan(t *testing.T) {
	t.Parallel()
	small, mid, half := wants(1, 8_000, 100, ""), wants(2, 30_000, 400, ""), wants(3, 15_000, 250, "")
	sure := cluster.Estimate{GPUType: "T4", GPUMemP95MiB: 8_000, Milli: 200, ConfidenceMilli: 900}
	predicted, doubtful := wants(4, 0, 0, ""), wants(5, 0, 0, "")
	predicted.Estimates = []cluster.Estimate{sure}
	sure.ConfidenceMilli = 100
	doubtful.Estimates = []cluster.Estimate{sure}
	onSeven := wants(6, 0, 0, "")
	onSeven.Estimates = []cluster.Estimate{{GPUType: "A100.3g.40gb", GPUMemP95MiB: 8_000, Milli: 600, ConfidenceMilli: 900}}
	for name, c := range map[string]struct {
		cards []Card
		busy  []string
		jobs  []*cluster.Job
		want  string
	}{
		"an idle GPU is cut for all that wait": {[]Card{a100("a", "7g.80gb@0")}, nil, []*cluster.Job{small, mid, small, half},
			"a -[a/7g.80gb@0] +[1g.10gb@0 3g.40gb@4 1g.10gb@1 2g.20gb@2] for [1 2 1 3]"},
		"an instance of the right size stays":         {[]Card{a100("a", "1g.10gb@0")}, nil, []*cluster.Job{small}, "-"},
		"and only one job has it":                     {[]Card{a100("a", "1g.10gb@0")}, nil, []*cluster.Job{small, small}, "a -[] +[1g.10gb@1] for [1]"},
		"idle small ones make room for a large one":   {[]Card{a100("a", "1g.10gb@0", "1g.10gb@4", "1g.10gb@5")}, []string{"a/1g.10gb@0"}, []*cluster.Job{mid}, "a -[a/1g.10gb@4 a/1g.10gb@5] +[3g.40gb@4] for [2]"},
		"busy ones do not":                            {[]Card{a100("a", "1g.10gb@0", "1g.10gb@4")}, []string{"a/1g.10gb@0", "a/1g.10gb@4"}, []*cluster.Job{mid}, "-"},
		"the fewest idle ones go":                     {[]Card{a100("a", "1g.10gb@0", "2g.20gb@4", "1g.10gb@6")}, nil, []*cluster.Job{half, mid}, "a -[a/1g.10gb@0] +[3g.40gb@0] for [2]"},
		"the card with the least idle":                {[]Card{a100("a", "7g.80gb@0"), a100("b")}, nil, []*cluster.Job{small}, "b -[] +[1g.10gb@0] for [1]"},
		"a job that names its type has that":          {[]Card{a100("a", "7g.80gb@0")}, nil, []*cluster.Job{wants(7, 1, 100, "A100.2g.20gb")}, "a -[a/7g.80gb@0] +[2g.20gb@0] for [7]"},
		"or another GPU":                              {[]Card{a100("a", "7g.80gb@0")}, nil, []*cluster.Job{wants(7, 1, 100, "T4")}, "-"},
		"compute counts":                              {[]Card{a100("a", "7g.80gb@0")}, nil, []*cluster.Job{wants(7, 8_000, 500, "")}, "a -[a/7g.80gb@0] +[4g.40gb@0] for [7]"},
		"a prediction counts":                         {[]Card{a100("a", "7g.80gb@0")}, nil, []*cluster.Job{predicted}, "a -[a/7g.80gb@0] +[2g.20gb@0] for [4]"},
		"that for an instance by its part of the GPU": {[]Card{a100("a", "7g.80gb@0")}, nil, []*cluster.Job{onSeven}, "a -[a/7g.80gb@0] +[2g.20gb@0] for [6]"},
		"a doubtful one does not":                     {[]Card{a100("a", "1g.10gb@0")}, nil, []*cluster.Job{doubtful}, "a -[a/1g.10gb@0] +[7g.80gb@0] for [5]"},
		"two GPUs are not made":                       {[]Card{a100("a", "7g.80gb@0")}, nil, []*cluster.Job{{ID: 8, Spec: &cluster.Spec{GPUs: 2, GPUMemMiB: 8_000}}}, "-"},
	} {
		if got := shown(Plan(c.cards, ledgerOf(t, c.cards, c.busy...), c.jobs)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestADrainedInstanceStays: an administrator has a reason to drain it.
func TestADrainedInstanceStays(t *testing.T) {
	t.Parallel()
	cards := []Card{a100("a", "7g.80gb@0")}
	g := cards[0].gpu(&cards[0].Profiles[5])
	g.ID = "a/7g.80gb@0"
	l := dispatch.NewLedger([]*cluster.Node{{ID: "n1", State: cluster.NodeReady, GPUs: []cluster.GPU{g}, Orders: []cluster.GPUOrder{{GPU: g.ID, Drain: true}}}})
	if cut := Plan(cards, l, []*cluster.Job{wants(1, 8_000, 100, "")}); cut != nil {
		t.Error(shown(cut))
	}
}

// TestCutsAreLegal: whatever is idle and whoever waits, nothing in use goes, no two instances
// share a slice, and each job gets one that holds it.
func TestCutsAreLegal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var cards []Card
		var busy []string
		for _, uuid := range []string{"a", "b"} {
			c, used := a100(uuid), 0
			for used < 8 {
				p := rapid.SampledFrom(c.Profiles).Draw(t, "profile")
				if !slices.Contains(p.Starts, used) || rapid.Bool().Draw(t, "leave it uncut") {
					used++
					continue
				}
				in := Instance{ID: cluster.GPUID(fmt.Sprint(uuid, used)), Profile: p.Name, Start: used, Size: p.Size}
				if c.Instances = append(c.Instances, in); rapid.Bool().Draw(t, "busy") {
					busy = append(busy, string(in.ID))
				}
				used += p.Size
			}
			cards = append(cards, c)
		}
		var jobs []*cluster.Job
		for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
			jobs = append(jobs, wants(i+1, rapid.Int64Range(0, 90_000).Draw(t, "mem"), rapid.Int64Range(1, 1000).Draw(t, "milli"), ""))
		}
		cut := Plan(cards, ledgerOf(t, cards, busy...), jobs)
		if cut == nil {
			return
		}
		after := slices.Clone(cut.Make)
		for _, in := range cut.Card.Instances {
			switch gone := slices.Contains(cut.Drop, in.ID); {
			case !gone:
				after = append(after, in)
			case slices.Contains(busy, string(in.ID)):
				t.Fatalf("%s, but a job is on %s", shown(cut), in.ID)
			}
		}
		for i := range after {
			p := cut.Card.profile(after[i].Profile)
			if !slices.Contains(p.Starts, after[i].Start) {
				t.Fatalf("%s: none begins there", shown(cut))
			}
			for k := range i {
				if after[i].overlaps(after[k]) {
					t.Fatalf("%s: %v and %v overlap", shown(cut), after[i], after[k])
				}
			}
		}
		for i, id := range cut.For {
			if !cut.Card.holds(cut.Card.profile(cut.Make[i].Profile), jobs[id-1]) {
				t.Fatalf("%s: job %d does not fit", shown(cut), id)
			}
		}
	})
}

// TestCandidates: a pass is shown what idle parts could become, and no more.
func TestCandidates(t *testing.T) {
	t.Parallel()
	cards := []Card{a100("a", "3g.40gb@0", "1g.10gb@4"), a100("b", "7g.80gb@0")}
	l := ledgerOf(t, cards, "a/3g.40gb@0", "b/7g.80gb@0")
	n := &cluster.Node{ID: "n1", State: cluster.NodeReady}
	snap := &dispatch.Snapshot{Nodes: []*cluster.Node{n}, Ledger: l}
	view, idle := Candidates(snap, cards)
	var types []string
	for _, g := range view.Nodes[0].GPUs {
		types = append(types, g.Type)
	}
	if got := fmt.Sprint(types); got != "[A100.1g.10gb A100.1g.20gb A100.2g.20gb A100.3g.40gb]" || len(idle) != 1 || len(n.GPUs) != 0 {
		t.Errorf("%s of %d cards; the snapshot has %d", got, len(idle), len(n.GPUs))
	}
	start := func(job cluster.JobID, gpu string) dispatch.Start {
		return dispatch.Start{Job: job, Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{{GPU: cluster.GPUID(gpu)}}}}
	}
	jobs := map[cluster.JobID]*cluster.Job{1: wants(1, 8_000, 100, ""), 2: wants(2, 8_000, 100, ""), 3: wants(3, 8_000, 100, "")}
	got := Wanted([]dispatch.Start{start(1, string(view.Nodes[0].GPUs[1].ID)), start(2, "a/1g.10gb@4"), start(3, "a/3g.40gb@0"), start(9, "other")}, cards, jobs)
	if len(got) != 2 || got[0].ID != 1 || got[1].ID != 3 {
		t.Errorf("wanted: %v", got)
	}
	if view, _ := Candidates(snap, cards[1:]); view != nil {
		t.Error("a GPU in use could be cut")
	}
}
