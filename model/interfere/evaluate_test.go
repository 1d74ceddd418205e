package interfere_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-scheduler/berth/model/interfere"
)

// dataEnv names a folder with the public pair data; it has lucid and gavel.
const dataEnv = "BERTH_COLOCATION_DATA"

// dataDir finds the pair data, which is not part of this repository, or skips.
func dataDir(tb testing.TB, sub string) string {
	tb.Helper()
	dir := os.Getenv(dataEnv)
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data", "colocation")
	}
	dir = filepath.Join(dir, sub)
	if _, err := os.Stat(dir); err != nil {
		tb.Skipf("no measured pairs here: set %s to a folder with lucid and gavel (%v)", dataEnv, err)
	}
	return dir
}

func lucid(tb testing.TB) []interfere.Pair {
	tb.Helper()
	pairs, err := interfere.ReadLucid(dataDir(tb, "lucid"))
	if err != nil {
		tb.Fatal(err)
	}
	return pairs
}

func gavel(tb testing.TB, name string) []interfere.Pair {
	tb.Helper()
	pairs, err := interfere.ReadGavel(filepath.Join(dataDir(tb, "gavel"), name))
	if err != nil {
		tb.Fatal(err)
	}
	return pairs
}

// TestBetterThanConstant: what was learned must beat the mean speed on every
// split of the measured pairs that has something to learn from, and by far for
// models that were seen.
func TestBetterThanConstant(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pairs func(testing.TB) []interfere.Pair
		split interfere.Split
		share float64 // of the constant's error
	}{
		{"lucid random", lucid, interfere.Random, 0.6},
		{"lucid unseen models", lucid, interfere.UnseenFamilies, 0.85},
		{"gavel random", func(tb testing.TB) []interfere.Pair { return gavel(tb, "gavel_pairs.csv.gz") }, interfere.Random, 0.6},
		{"gavel physical random", func(tb testing.TB) []interfere.Pair { return gavel(tb, "gavel_pairs_physical.csv.gz") }, interfere.Random, 0.6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rs := interfere.Evaluate(tc.pairs(t), tc.split, 1)
			if len(rs) == 0 {
				t.Fatal("no results")
			}
			for _, r := range rs {
				t.Log(r)
			}
			learned, constant := rs[0], rs[len(rs)-1]
			if learned.MAPE > tc.share*constant.MAPE {
				t.Errorf("MAPE %.3f, must be at most %.2f of the constant's %.3f", learned.MAPE, tc.share, constant.MAPE)
			}
		})
	}
}

// TestNewcomer: a few pairs with a new model make it better known, and known
// better than by its load alone.
func TestNewcomer(t *testing.T) {
	pairs := lucid(t)
	var errs []float64
	for _, known := range []int{0, 5, 20, 80} {
		rs := interfere.Newcomer(pairs, known, 1)
		t.Logf("%d pairs known: %v", known, rs[0])
		errs = append(errs, rs[0].MAPE)
	}
	for i := 1; i < len(errs); i++ {
		if errs[i] >= errs[i-1] {
			t.Errorf("more pairs known, more error: %.4f", errs)
		}
	}
}
