package e2e

import (
	"strings"
	"testing"
)

// TestJobsBeginWhereTheirImageIs: a job goes to the node that holds its image, be it not
// the first; one without an image goes where it would have gone.
func TestJobsBeginWhereTheirImageIs(t *testing.T) {
	needContainerd(t)
	t.Parallel()
	c := startCluster(t, "--runtime", "containerd", "--nodes", "2x1xT4")
	r, dir := newRegistry(t), openDir(t)
	close(r.more)
	runs := func(args ...string) (node, why string) {
		args = append([]string{"submit", "--parsable", "-D", dir, "--gpus", "1", "--gpu-mem", "1G", "--gpu-util", "10"}, args...)
		id := parseID(t, c.runAs(alice, args...).stdout)
		if j := c.await(id, "COMPLETED", "FAILED"); j.State != "COMPLETED" {
			t.Fatalf("%v ended %s (%s)", args, j.State, j.Reason)
		}
		var j struct {
			Node     string `json:"node"`
			Attempts []struct {
				Why string `json:"why"`
			} `json:"attempts"`
		}
		c.showInto(id, &j)
		return j.Node, j.Attempts[0].Why
	}
	if node, why := runs("--node", "n2", "--image", r.image(), "--", "true"); node != "n2" || strings.Contains(why, "image") {
		t.Errorf("the first lies on %s: %s", node, why)
	}
	c.eventually("the leader knows of the image", func() bool {
		return strings.Contains(c.runAs(alice, "node", "show", "n2").stdout, "1 held")
	})
	if node, why := runs("--image", r.image(), "--", "true"); node != "n2" || !strings.Contains(why, "on a node that has its image") {
		t.Errorf("the second lies on %s: %s", node, why)
	}
	if node, why := runs("--", "true"); node != "n1" || strings.Contains(why, "image") {
		t.Errorf("one without an image lies on %s: %s", node, why)
	}
}
