package experiment

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// atHand returns where the traces lie: in $BERTH_TRACES, or beside the
// repository.
func atHand(t *testing.T) Config {
	t.Helper()
	dir := os.Getenv("BERTH_TRACES")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "data", "traces")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the published traces are not there; set BERTH_TRACES to a folder with one subfolder a trace: %v", err)
	}
	return Config{Traces: dir, Colocation: filepath.Join(filepath.Dir(dir), "colocation"), Quick: true}
}

// TestPublishedLevels reruns the quick form of those experiments that take
// seconds, and fails when a claim that docs/experiments.md calls met is not.
func TestPublishedLevels(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	c := atHand(t)
	for name, claims := range map[string][]string{
		"yeung":     {"utilization of ffd over slot", "makespan of ffd over slot", "mean slowdown of ffd"},
		"schedtune": {"makespan of ffd over fifo", "out-of-memories of ffd", "makespan of schedtune over fifo", "out-of-memories of schedtune"},
		"lucid":     {"fifo is so far", "sjf is so far", "srtf is so far", "las is so far", "completion time of ffd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, err := ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			rep, err := x.Run(context.Background(), c)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range claims {
				found := false
				for _, got := range rep.Claims {
					if !strings.Contains(got.What, want) {
						continue
					}
					found = true
					if !got.Met {
						t.Errorf("%s: wanted %g, got %g", got.What, got.Want, got.Got)
					}
				}
				if !found {
					t.Errorf("no claim about %s in %v", want, rep.Claims)
				}
			}
		})
	}
}
