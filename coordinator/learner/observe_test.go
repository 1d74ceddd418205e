package learner

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/interfere"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/scheduler"
)

var _ = draws.Fixed()

// run is a sample of a job that took so many seconds beside others.
func run(sig string, seconds float64, steps int64, company ...fsm.Company) fsm.Sample {
	s := fsm.Sample{
		Signature: sig, GPUType: "T4", Duration: time.Duration(seconds * float64(time.Second)), Steps: steps, Milli: 400, UID: 1000,
		Company: company, Neighbours: len(company), Predicted: cluster.Estimate{GPUType: "T4", Milli: 300},
	}
	if len(company) > 0 {
		s.CapMode = "sim"
	}
	return s
}

func with(sig string, seconds float64) fsm.Company {
	return fsm.Company{Signature: sig, Overlap: time.Duration(seconds * float64(time.Second)), Milli: 200}
}

func TestObservationsFromSamples(t *testing.T) {
	t.Parallel()
	named := func(s fsm.Sample, model string) fsm.Sample {
		s.Features = featuresOf(t, model)
		return s
	}
	a, b := interfere.Job{Signature: "a", Util: 0.4, Bandwidth: -1}, interfere.Job{Signature: "b", Util: 0.2, Bandwidth: -1}
	seen := func(speed float64, job interfere.Job, others ...interfere.Job) interfere.Observation {
		return interfere.Observation{GPUType: "T4", Job: job, Others: others, Speed: speed, User: "1000"}
	}
	edit := func(s fsm.Sample, f func(*fsm.Sample)) fsm.Sample { f(&s); return s }
	alone := run("a", 100, 0)
	family := func(j interfere.Job, f string) interfere.Job { j.Family = f; return j }
	for _, tc := range []struct {
		name    string
		samples []fsm.Sample
		want    []interfere.Observation
	}{
		{"nothing alone", []fsm.Sample{run("a", 200, 0, with("b", 200))}, nil},
		{"all the time beside one", []fsm.Sample{alone, run("a", 200, 0, with("b", 200))}, []interfere.Observation{seen(0.5, a, b)}},
		{"alone afterwards", []fsm.Sample{run("a", 200, 0, with("b", 200)), alone}, []interfere.Observation{seen(0.5, a, b)}},
		{"the median of several alone", []fsm.Sample{run("a", 90, 0), alone, run("a", 900, 0), run("a", 200, 0, with("b", 195))}, []interfere.Observation{seen(0.5, a, b)}},
		{"a step each", []fsm.Sample{run("a", 100, 1000), run("a", 50, 250, with("b", 50))}, []interfere.Observation{seen(0.5, a, b)}},
		{"steps of one alone", []fsm.Sample{run("a", 100, 1000), run("a", 50, 0, with("b", 50))}, nil},
		// 50 s alone and 100 s at half speed.
		{"two thirds of the time", []fsm.Sample{alone, run("a", 150, 0, with("b", 100))}, []interfere.Observation{seen(0.5, a, b)}},
		{"too short a time", []fsm.Sample{alone, run("a", 110, 0, with("b", 20))}, nil},
		{"hardly met", []fsm.Sample{alone, run("a", 110, 0, with("b", 5))}, nil},
		{"two of one kind", []fsm.Sample{alone, run("a", 200, 0, with("b", 390))}, []interfere.Observation{seen(0.5, a, b, b)}},
		{"one and a half of one kind", []fsm.Sample{alone, run("a", 200, 0, with("b", 300))}, nil},
		{"two kinds all the time", []fsm.Sample{alone, run("a", 200, 0, with("a", 200), with("b", 190))}, []interfere.Observation{seen(0.5, a, a, b)}},
		{"two kinds, one for half of it", []fsm.Sample{alone, run("a", 200, 0, with("a", 200), with("b", 100))}, nil},
		{"a neighbour that was measured alone", []fsm.Sample{alone, run("b", 10, 0), run("a", 200, 0, with("b", 200))},
			[]interfere.Observation{seen(0.5, a, interfere.Job{Signature: "b", Util: 0.4, Bandwidth: -1})}},
		{"another type alone", []fsm.Sample{edit(alone, func(s *fsm.Sample) { s.GPUType = "A100" }), run("a", 200, 0, with("b", 200))}, nil},
		{"MPS", []fsm.Sample{alone, edit(run("a", 200, 0, with("b", 200)), func(s *fsm.Sample) { s.CapMode = "mps" })},
			[]interfere.Observation{{GPUType: "T4", Mode: interfere.MPS, Job: a, Others: []interfere.Job{b}, Speed: 0.5, User: "1000"}}},
		{"MIG", []fsm.Sample{alone, edit(run("a", 200, 0, with("b", 200)), func(s *fsm.Sample) { s.CapMode = "mig" })}, nil},
		{"out of memory", []fsm.Sample{alone, edit(run("a", 200, 0, with("b", 200)), func(s *fsm.Sample) { s.Censored = true })}, nil},
		{"cut off", []fsm.Sample{alone, edit(run("a", 200, 0, with("b", 200)), func(s *fsm.Sample) { s.Duration = 0 })}, nil},
		{"shared, with whom is not known", []fsm.Sample{alone, edit(run("a", 200, 0), func(s *fsm.Sample) { s.Neighbours = 3 })}, nil},
		{"faster than can be", []fsm.Sample{alone, run("a", 40, 0, with("b", 40))}, nil},
		{"families", []fsm.Sample{named(alone, "resnet50"), named(run("b", 10, 0), "bert"), run("a", 200, 0, with("b", 200))},
			[]interfere.Observation{seen(0.5, family(a, "train/resnet50"), family(interfere.Job{Signature: "b", Util: 0.4, Bandwidth: -1}, "train/bert"))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			runs := make([]model.Sample, len(tc.samples))
			for i := range tc.samples {
				runs[i] = modelSample(&tc.samples[i])
			}
			got := observations(tc.samples, runs)
			for i := range got {
				got[i].Speed = math.Round(got[i].Speed*1e9) / 1e9
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func featuresOf(t *testing.T, name string) []byte {
	t.Helper()
	f := model.Features{Source: model.SourceCatalogue, Model: name, Run: model.Run{Mode: model.Training, Batch: 1, Precision: "fp32"}}
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	return f.Encode()
}

// TestTheSchedulerReckonsAsTheModelDoes: whatever was learned, the scheduler
// keeps a job off a card exactly when the model predicts that somebody there
// would be slowed down beyond the limit.
func TestTheSchedulerReckonsAsTheModelDoes(t *testing.T) {
	t.Parallel()
	features := [][]byte{nil, featuresOf(t, "bert"), featuresOf(t, "resnet50")}
	rapid.Check(t, func(t *rapid.T) {
		spec := func(label string) *cluster.Spec {
			k := rapid.IntRange(0, 5).Draw(t, label)
			return &cluster.Spec{
				GPUs: 1, GPUMemMiB: 100, GPUMilli: rapid.Int64Range(1, 300).Draw(t, label+" milli"), CPUMilli: 1, MemMiB: 1,
				Signature: fmt.Sprintf("s%d", k), Features: features[k%3],
			}
		}
		load := func(s *cluster.Spec) interfere.Job { return (&Sharer{Spec: s}).On("T4") }
		var obs []interfere.Observation
		for range rapid.IntRange(1, 60).Draw(t, "observations") {
			o := interfere.Observation{GPUType: "T4", Job: load(spec("victim")), Speed: rapid.Float64Range(0.2, 1).Draw(t, "speed")}
			for range rapid.IntRange(1, 2).Draw(t, "others") {
				o.Others = append(o.Others, load(spec("other")))
			}
			obs = append(obs, o)
		}
		m := interfere.Fit(obs)
		c := knowing(t, m.Encode())
		node := &cluster.Node{ID: "n", State: cluster.NodeReady, CPUMilli: 1000, MemMiB: 1000, GPUs: []cluster.GPU{
			{ID: "g", Type: "T4", MemMiB: 1000, SellableMiB: 1000, MaxShares: 3, CapMode: "sim"},
		}}
		snap := &dispatch.Snapshot{Nodes: []*cluster.Node{node}, Ledger: dispatch.NewLedger([]*cluster.Node{node}), Now: 1}
		set := interfere.Set{GPUType: "T4"}
		for i := range rapid.IntRange(1, 2).Draw(t, "residents") {
			s := spec("resident")
			b := cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: "g", Share: cluster.Share{MemMiB: 100, Milli: s.GPUMilli}}}}
			snap.Ledger.Take(&b)
			snap.Running = append(snap.Running, &cluster.Job{ID: cluster.JobID(i) + 1, Spec: s, State: cluster.JobRunning,
				Attempts: []cluster.Attempt{{No: 1, State: cluster.JobRunning, Berth: b}}})
			set.Jobs = append(set.Jobs, load(s))
		}
		newcomer := &cluster.Job{ID: 9, Spec: spec("newcomer"), State: cluster.JobPending}
		set.Jobs = append(set.Jobs, load(newcomer.Spec))
		snap.Waiting = []*cluster.Job{newcomer}
		snap.Interference = c.ForScheduler(snap.Nodes, snap.Waiting, snap.Running)
		worst := 1.0
		for _, x := range m.Explain(set) {
			worst = max(worst, x.Slowdown)
		}
		pol := scheduler.Default()
		for limit, want := range map[int64]int{int64(worst*1000) + 2: 1, int64(worst*1000) - 2: 0} {
			if worst < 1.01 {
				return
			}
			pol.MaxSlowdownMilli = limit
			if p := scheduler.Schedule(snap, pol); len(p.Starts) != want {
				t.Fatalf("limit %d, the model predicts %v: %d starts, want %d", limit, worst, len(p.Starts), want)
			}
		}
	})
}

// knowing is what a coordinator knows whose state holds blob.
func knowing(t interface{ Fatalf(string, ...any) }, blob []byte) *Company {
	f := fsm.New(fsm.Options{})
	install(t, f, 1, blob)
	return &Company{fsm: f, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func install(t interface{ Fatalf(string, ...any) }, f *fsm.FSM, version uint64, blob []byte) {
	data, err := fsm.EncodeEntry(fsm.EntryVersion, 1, 1, []*logv1.Command{installInterference(version, blob, 1, 1)})
	if err != nil {
		t.Fatalf("%v", err)
	}
	if rs := f.Apply(&raft.Log{Index: version, Term: 1, Data: data}).([]fsm.Result); rs[0].Err != nil {
		t.Fatalf("%v", rs[0].Err)
	}
}

// TestGarbageLeavesTheBuiltInCoefficients: and what can be read later is used.
func TestGarbageLeavesTheBuiltInCoefficients(t *testing.T) {
	t.Parallel()
	c := knowing(t, []byte("garbage"))
	if c.Model() != nil || c.ForScheduler(nil) != nil || c.Newest() != nil {
		t.Error("garbage is used")
	}
	install(t, c.fsm, 2, interfere.Fit(nil).Encode())
	if c.Model() == nil || c.ForScheduler(nil) == nil || len(c.Newest().Cards) != 0 {
		t.Error("what can be read is not used")
	}
}
