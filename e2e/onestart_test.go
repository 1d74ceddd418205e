package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestOneStartEverywhere: of a job that waits behind one whose time nobody knows, all
// commands say the same start, to what passes between them.
func TestOneStartEverywhere(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4")
	dir := openDir(t)
	c.submit("-D", dir, "-o", "/dev/null", "--gpus", "1", "--exclusive", "--", "sleep", "600")
	id := fmt.Sprint(c.submit("-D", dir, "-o", "/dev/null", "--gpus", "1", "--exclusive", "--", "sleep", "1"))
	figures := [][]string{
		{"why", id, "-o", "json", "--jq", ".forecast.start_p90"},
		{"why", id, "-o", "json", "--jq", ".job.estimated_start"},
		{"show", id, "-o", "json", "--jq", ".estimated_start"},
		{"queue", "-o", "json", "--jq", ".[] | select(.id == " + id + ") | .estimated_start"},
		{"queue", "--start", "-o", "json", "--jq", ".[].forecast.start_p90"},
	}
	c.eventually("a start to be expected", func() bool { return !strings.Contains(c.run(figures[0]...), "null") })
	var first time.Time
	for _, args := range figures {
		out := strings.TrimSpace(c.run(args...))
		at, err := time.Parse(time.RFC3339, out)
		if err != nil {
			t.Fatalf("%q prints %q", args, out)
		}
		if first.IsZero() {
			first = at
		}
		if d := at.Sub(first).Abs(); d > 2*time.Minute {
			t.Errorf("%q says %v, which is %v from %v, as berth why has it", args, at, d, first)
		}
	}
}
