package coordinator

import (
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/model"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func ran(predicted, peak int64) fsm.Sample {
	return fsm.Sample{GPUMemPeakMiB: peak, Predicted: cluster.Estimate{GPUMemMiB: predicted, GPUMemP95MiB: predicted + predicted/10, Source: "graph"}}
}

func repeat(n int, s fsm.Sample) []fsm.Sample {
	out := make([]fsm.Sample, n)
	for i := range out {
		out[i] = s
	}
	return out
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	declared, unknown, old, oom := ran(500, 1000), ran(500, 1000), fsm.Sample{GPUMemPeakMiB: 1000}, ran(500, 1000)
	declared.Predicted.Source, unknown.Predicted.Source, oom.Censored = "declared", "none", true
	timed := ran(900, 1000)
	timed.Milli, timed.Predicted.Milli = 400, 300
	timed.Duration, timed.Predicted.Duration = 10*time.Second, 15*time.Second
	got := measure([]fsm.Sample{declared, unknown, old, oom, timed, ran(1000, 1000), ran(1500, 1000)})
	want := accuracy{
		memory: errorsOf{runs: 3, mean: 0.2, median: 0.1}, util: errorsOf{1, 0.25, 0.25}, time: errorsOf{1, 0.5, 0.5},
		withinP95: 2.0 / 3, outOfMemory: 1,
	}
	// 900 + 90 is below 1000; the other two are not.
	if math.Abs(got.memory.mean-want.memory.mean) > 1e-12 {
		t.Errorf("mean %v, want %v", got.memory.mean, want.memory.mean)
	}
	got.memory.mean = want.memory.mean
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if none := measure(nil); none != (accuracy{}) {
		t.Errorf("of nothing: %+v", none)
	}
}

func TestDrift(t *testing.T) {
	t.Parallel()
	good, bad, worse := repeat(driftRuns, ran(1020, 1000)), repeat(driftRuns, ran(1200, 1000)), repeat(driftRuns, ran(2000, 1000))
	for _, tc := range []struct {
		name    string
		samples []fsm.Sample
		want    bool
	}{
		{"nothing", nil, false},
		{"too few", worse, false},
		{"good then bad", append(good[:driftRuns:driftRuns], bad...), true},
		{"bad then good", append(bad[:driftRuns:driftRuns], good...), false},
		{"bad then twice as bad", append(bad[:driftRuns:driftRuns], worse...), true},
		{"as bad as before", append(bad[:driftRuns:driftRuns], bad...), false},
		{"exact, then nearly", append(repeat(driftRuns, ran(1000, 1000)), good...), false},
		{"what is declared does not count", append(good[:driftRuns:driftRuns], repeat(driftRuns, func() fsm.Sample {
			s := ran(3000, 1000)
			s.Predicted.Source = "declared"
			return s
		}())...), false},
	} {
		if got := drifted(tc.samples); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

func TestPPM(t *testing.T) {
	t.Parallel()
	for in, want := range map[float64]int64{0: 0, math.Log(1.05): 50_000, -math.Log(1.05): 50_000, math.NaN(): 1_000_000_000, math.Inf(1): 1_000_000_000, 700: 1_000_000_000} {
		if got := ppm(in); got != want {
			t.Errorf("%v: %d, want %d", in, got, want)
		}
	}
}

func TestClipText(t *testing.T) {
	t.Parallel()
	if got := clipText("größer\xff", 4); got != "grö" {
		t.Errorf("%q", got)
	}
	if got := clipText("as it is", 100); got != "as it is" {
		t.Errorf("%q", got)
	}
}

// TestTheLastGoodWeightsStayInUse: weights that somehow got into the log and
// cannot be read are passed over, and said once.
func TestTheLastGoodWeightsStayInUse(t *testing.T) {
	t.Parallel()
	f := fsm.New(fsm.Options{})
	good := model.DefaultWeights()
	good.EstimateMarginMiB += 100
	for i, blob := range [][]byte{good.Encode(), []byte("garbage"), []byte("more of it")} {
		data, err := fsm.EncodeEntry(fsm.EntryVersion, 1, 1, []*logv1.Command{installWeights(uint64(i)+1, blob, &logv1.WeightsOrigin{Source: fsm.WeightsImport})})
		if err != nil {
			t.Fatal(err)
		}
		if rs := f.Apply(&raft.Log{Index: uint64(i) + 1, Term: 1, Data: data}).([]fsm.Result); rs[0].Err != nil {
			t.Fatal(rs[0].Err)
		}
	}
	var logged strings.Builder
	l := &learner{fsm: f, log: slog.New(slog.NewTextHandler(&logged, nil)), refused: map[uint64]struct{}{}}
	for range 3 {
		l.reload()
		if l.predictor() == nil {
			t.Fatal("no predictor")
		}
		if w := l.usable(); w.EstimateMarginMiB != good.EstimateMarginMiB {
			t.Fatalf("in use is a margin of %v, want that of the last good weights, %v", w.EstimateMarginMiB, good.EstimateMarginMiB)
		}
	}
	if n := strings.Count(logged.String(), "cannot be used"); n != 2 {
		t.Errorf("said %d times for 2 bad versions:\n%s", n, logged.String())
	}
}
