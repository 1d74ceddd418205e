package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJobsBeginWhereTheirDataIs: a job that names a data set goes to the node that has it,
// be it not the first, and finds its path; one that cannot have it there starts elsewhere,
// unless it insists. A name that no node has is a warning.
func TestJobsBeginWhereTheirDataIs(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "sets", "coco"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "sets"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := startCluster(t, "--nodes", "1x1xT4,1x1xT4@data="+filepath.Join(dir, "sets")+"/*")
	c.eventually("the data set is known", func() bool {
		return strings.Contains(c.runAs(alice, "node", "show", "n2").stdout, "coco")
	})
	show := func(id uint64) (node, why string) {
		var j struct {
			Node     string `json:"node"`
			Attempts []struct {
				Why string `json:"why"`
			} `json:"attempts"`
		}
		c.showInto(id, &j)
		return j.Node, j.Attempts[0].Why
	}
	submit := func(args ...string) uint64 {
		return parseID(t, c.runAs(alice, append([]string{"submit", "--parsable", "-D", dir, "--gpus", "1", "-o", "%j.out"}, args...)...).stdout)
	}
	script := []string{"--", "sh", "-c", `echo at $BERTH_DATA_COCO; while [ ! -e go ]; do sleep 0.1; done`}
	first := submit(append([]string{"--data", "coco"}, script...)...)
	c.await(first, "RUNNING")
	if node, why := show(first); node != "n2" || !strings.Contains(why, "on a node that has its data coco") {
		t.Errorf("the first lies on %s: %s", node, why)
	}
	strict := submit(append([]string{"--data", "coco!"}, script...)...)
	second := submit(append([]string{"--data", "coco"}, script...)...)
	c.await(second, "RUNNING")
	if node, _ := show(second); node != "n1" {
		t.Errorf("the second lies on %s while n2 is taken", node)
	}
	if r := c.runAs(alice, "submit", "-D", dir, "--data", "imagenet", "--", "true"); !strings.Contains(r.stderr, "data imagenet: no node has it") || !strings.Contains(r.stderr, "they have coco") {
		t.Errorf("of an unknown one: %s", r.stderr)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uint64]string{first: "at " + filepath.Join(dir, "sets", "coco"), strict: "at " + filepath.Join(dir, "sets", "coco"), second: "at"} {
		c.await(id, "COMPLETED")
		out, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(id)+".out"))
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("job %d said %q (%v), want %q", id, out, err, want)
		}
	}
	if node, _ := show(strict); node != "n2" {
		t.Errorf("the strict one lies on %s", node)
	}
}
