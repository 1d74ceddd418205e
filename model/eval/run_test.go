package eval

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// TestScore compares all figures with ones worked out by hand.
func TestScore(t *testing.T) {
	nan := math.NaN()
	for name, tc := range map[string]struct {
		points []Point
		memory bool
		want   scores
	}{
		"nothing": {nil, true, scores{0, nan, nan, nan, nan, nan, nan, nan, nan, nan}},
		// Errors 10, 0, 50 and 25 %; two below; margins of 10, 20, -40 and 50 %.
		"memory": {
			[]Point{
				{Actual: 100, Predicted: 110, P95: 110}, {Actual: 200, Predicted: 200, P95: 240},
				{Actual: 400, Predicted: 200, P95: 240}, {Actual: 800, Predicted: 600, P95: 1200},
			}, true,
			scores{
				4, 0.85 / 4, 0.175, 0.425, math.Sqrt((100 + 40000 + 40000) / 4.0),
				math.Sqrt((sq(math.Log(111.0/101)) + sq(math.Log(201.0/401)) + sq(math.Log(601.0/801))) / 4), 0.5, 0.75, 0.1, 0.25,
			},
		},
		"censored rows count for OOM alone": {
			[]Point{{Actual: 100, Predicted: 150, P95: 150}, {Actual: 500, Predicted: 300, P95: 400, Censored: true}, {Actual: 500, Predicted: 300, P95: 600, Censored: true}},
			true,
			scores{1, 0.5, 0.5, 0.5, 50, math.Log(151.0 / 101), 0, 1, 0.5, 1.0 / 3},
		},
		"time has no margin": {
			[]Point{{Actual: 10, Predicted: 5}}, false,
			scores{1, 0.5, 0.5, 0.5, 5, math.Log(11.0 / 6), 1, nan, nan, nan},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := score(tc.points, tc.memory)
			if d := cmp.Diff(tc.want, got, cmp.AllowUnexported(scores{}), cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-12)); d != "" {
				t.Errorf("scores (-want +got):\n%s", d)
			}
		})
	}
}

func sq(v float64) float64 { return v * v }

func TestQuantile(t *testing.T) {
	v := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 0.9: 3.7, 1: 4} {
		if got := quantile(v, q); math.Abs(got-want) > 1e-12 {
			t.Errorf("quantile %g = %g, want %g", q, got, want)
		}
	}
	if v[0] != 4 {
		t.Error("quantile sorted its argument")
	}
}

// synthetic is a data set of jobs whose needs follow from their features.
func synthetic(dataset string, models []string, gpus []string) Set {
	s := Set{Dataset: dataset, Target: Memory, Skipped: map[string]int{"odd": 2}}
	id := uint64(0)
	for i, m := range models {
		for _, g := range gpus {
			for b := int64(1); b <= 8; b++ {
				id++
				r := row(id+uint64(len(dataset))<<32, m, familyOf(m), g)
				f := model.Features{Source: model.SourceGraph, Model: m, Params: int64(i+1) * 1e6, ParamBytes: int64(i+1) * 4e6, SavedBytes: b * int64(i+2) * 1e8, FLOPs: b * 1e9}
				f.Run = model.Run{Mode: model.Training, Batch: b, Precision: graph.FP32, Optimizer: graph.Adam}
				r.Sample.Features, r.Sample.PeakMiB = f, 800+b*int64(i+2)*100
				s.Rows = append(s.Rows, r)
			}
		}
	}
	return s
}

func mustNew(t *testing.T, names ...string) []Trainer {
	t.Helper()
	var out []Trainer
	for _, n := range names {
		tr, err := New(n)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tr)
	}
	return out
}

// spy checks that nothing measured reaches an estimator, and answers 1.
type spy struct{ t *testing.T }

func (spy) Name() string { return "spy" }

func (s spy) Train(samples []model.Sample) (Estimator, error) {
	for i := range samples {
		if samples[i].PeakMiB == 0 {
			s.t.Error("a sample to train on lacks its label")
		}
	}
	return s, nil
}

func (s spy) Estimate(q *model.Sample) Estimate {
	if q.PeakMiB != 0 || q.UtilMilli != 0 || q.Seconds != 0 || q.Censored || q.HostMiB != 0 {
		s.t.Errorf("what was measured is shown to the estimator: %+v", q)
	}
	return Estimate{MemMiB: 1, P95MiB: 1}
}

func TestRunHidesWhatWasMeasured(t *testing.T) {
	rs, err := Run([]Set{synthetic("d", []string{"a1", "b1"}, []string{"T4", "K80"})}, nil, Options{Trainers: []Trainer{spy{t}}})
	if err != nil || len(rs) != 4 {
		t.Fatalf("%d results, %v", len(rs), err)
	}
	for _, r := range rs {
		if l := r.Line(); l.N != 32 || *l.Under != 100 || l.Skipped != 2 || *l.OOMRate != 100 {
			t.Errorf("%s: %+v", r.Title(), l)
		}
	}
}

// failing is a trainer that cannot train.
type failing struct{ err error }

func (failing) Name() string                              { return "failing" }
func (f failing) Train([]model.Sample) (Estimator, error) { return nil, f.err }

func TestRunErrors(t *testing.T) {
	sets := []Set{synthetic("d", []string{"a1", "b1"}, []string{"T4"})}
	broken := errors.New("broken")
	if _, err := Run(sets, nil, Options{Trainers: []Trainer{failing{broken}}}); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the trainer", err)
	}
	if rs, err := Run(sets, nil, Options{Trainers: []Trainer{failing{ErrNoSamples}}}); err != nil || len(rs) != 0 {
		t.Errorf("%d results, %v", len(rs), err)
	}
	if _, err := Run(sets, nil, Options{}); err == nil {
		t.Error("no trainer and no error")
	}
}

// TestRunRefusesLeaks plants a row of the training set among those to score, as
// a bug in the choice of rows would.
func TestRunRefusesLeaks(t *testing.T) {
	s := synthetic("d", []string{"a1", "b1"}, []string{"T4"})
	f := fold{train: s.Rows[:8], test: append([]Row{s.Rows[3]}, s.Rows[8:]...)}
	var leak *LeakError
	if _, err := scoreFold(Memory, Model, f, mustNew(t, "mean")[0]); !errors.As(err, &leak) {
		t.Errorf("error %v, want a leak", err)
	}
}

func TestRunBetweenDirectories(t *testing.T) {
	train := []Set{synthetic("d", []string{"a1", "b1"}, []string{"T4", "K80"}), synthetic("lonely", []string{"c1"}, []string{"T4"})}
	test := []Set{synthetic("d", []string{"a1", "b2", "e1"}, []string{"K80", "V100"}), synthetic("newcomer", []string{"a1", "z1"}, []string{"T4"})}
	for i := range test[0].Rows { // other lines than those trained on
		test[0].Rows[i].ID += 1 << 60
	}
	rs, err := Run(train, test, Options{Trainers: mustNew(t, "mean")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rs {
		got = append(got, fmt.Sprintf("%s %s trained %d scored %d", r.Dataset, r.Split, r.TrainedN, len(r.Points)))
	}
	want := []string{
		"d random trained 32 scored 48",
		"d model trained 32 scored 16",         // b2 and e1 on K80
		"d family trained 32 scored 16",        // e1
		"d gpu trained 32 scored 8",            // a1 on V100
		"d model_gpu trained 32 scored 16",     // b2 and e1 on V100
		"newcomer random trained 24 scored 16", // trained on all but a1, which it has itself
		"newcomer model trained 24 scored 16",
		"newcomer family trained 24 scored 16",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("results (-want +got):\n%s", d)
	}
}

// TestDeterministic: the same files give the same bytes, drawings included.
func TestDeterministic(t *testing.T) {
	once := func() (string, []Result) {
		sets, _ := load(t, fixtures)
		rs, err := Run(sets, nil, Options{Trainers: mustNew(t, "physics", "mean"), Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(NewReport(rs))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw), rs
	}
	a, rs := once()
	b, _ := once()
	if a != b {
		t.Error("two runs differ")
	}
	for _, key := range []string{"dataset", "target", "split", "n", "mape", "median_ape", "p90_ape", "rmse", "rmsle", "under", "p95_coverage", "p95_waste"} {
		if !strings.Contains(a, `"`+key+`":`) {
			t.Errorf("the report lacks %s", key)
		}
	}
	dirs := []string{filepath.Join(t.TempDir(), "new"), t.TempDir()}
	var files [2][]string
	for i, d := range dirs {
		var err error
		if files[i], err = Plot(d, rs); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(files[0], files[1]); d != "" || len(files[0]) == 0 {
		t.Fatalf("drawings %v: %s", files[0], d)
	}
	for _, name := range files[0] {
		x, err := os.ReadFile(filepath.Join(dirs[0], name))
		y, err2 := os.ReadFile(filepath.Join(dirs[1], name))
		if err != nil || err2 != nil || string(x) != string(y) || !strings.HasSuffix(string(x), "</svg>\n") {
			t.Errorf("%s: %v, %v, or the drawings differ", name, err, err2)
		}
	}
}

// TestPhysicsOnRealData keeps the whole comparison working on real files, and
// in bounds that a user would wait.
func TestPhysicsOnRealData(t *testing.T) {
	if *dataDir == "" {
		t.Skip("no measured data sets here: name their directory with -data")
	}
	begin := time.Now()
	sets, _ := load(t, *dataDir)
	rs, err := Run(sets, nil, Options{Trainers: mustNew(t, "physics", "mean")})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if l := r.Line(); l.N == 0 || l.MAPE == nil {
			t.Errorf("%s: no figures", r.Title())
		}
	}
	if d := time.Since(begin); d > time.Minute {
		t.Errorf("took %v", d)
	}
}
