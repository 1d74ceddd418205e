package eval

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/learn"
)

// free are the data sets whose licences allow weights fitted on them to be
// given away; see model/builtin.md.
var free = []string{"litgpt", "neusight", "profile_h200", "schedtune", "timm_speed"}

// TestBuiltinWeightsAreTheFit: what ships is what the data and this source
// give, to the byte.
func TestBuiltinWeightsAreTheFit(t *testing.T) {
	if testing.Short() {
		t.Skip("fits some 13,000 rows")
	}
	t.Parallel()
	ours, err := (&Loader{}).Load(filepath.Join("..", "measured"))
	if err != nil {
		t.Fatal(err)
	}
	sets := append(slices.Clone(loadReal(t)), ours...)
	sets = slices.DeleteFunc(sets, func(s Set) bool { return !slices.Contains(free, s.Dataset) })
	slices.SortStableFunc(sets, func(a, b Set) int { return strings.Compare(a.Dataset, b.Dataset) })
	w, err := learn.Fit(Samples(sets), model.CoreWeights(), learn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	builtin := model.DefaultWeights()
	if !bytes.Equal(w.Encode(), builtin.Encode()) {
		t.Errorf("the fit has checksum %08x, the built-in weights %08x: run berth model fit as model/builtin.md says", w.Checksum(), builtin.Checksum())
	}
}

// loadReal reads the measured data sets: those that -data names, else those
// that stand beside the repository; without any the test is skipped.
func loadReal(t *testing.T) []Set {
	t.Helper()
	dir := *dataDir
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data", "predictor")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no measured data at hand (give them with -data): %v", err)
	}
	sets, err := (&Loader{}).Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return sets
}
