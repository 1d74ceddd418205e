package e2e

import (
	"fmt"
	"testing"
)

// TestHostMemoryIsPredicted: a job of a known model that says nothing of host memory
// gets what is predicted, and not the default, which this one is larger than. What is
// declared stays final.
func TestHostMemoryIsPredicted(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xA100-SXM4-80GB")
	dir := openDir(t)
	const takes = "head -c 2300m /dev/zero | tail | wc -c"
	model := []string{"-D", dir, "--model", "resnet50", "--batch", "64", "--gpus", "1"}
	free := c.submit(append(model, "--", "sh", "-c", takes)...)
	tight := c.submit(append(model, "--mem", "1G", "--", "sh", "-c", takes)...)
	if j := c.await(free, "COMPLETED", "FAILED", "OUT_OF_MEMORY"); j.State != "COMPLETED" {
		t.Errorf("job %d: %s (%s), want its predicted memory to hold it\n%s", free, j.State, j.Reason, c.run("show", fmt.Sprint(free)))
	}
	if j := c.await(tight, "COMPLETED", "FAILED", "OUT_OF_MEMORY"); j.State != "OUT_OF_MEMORY" {
		t.Errorf("job %d: %s (%s), want the declared 1 GiB to be final", tight, j.State, j.Reason)
	}
}
