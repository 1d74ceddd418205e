package e2e

import (
	"fmt"
	"testing"
)

// TestSearchesByHandAreKnown: here-documents are scripts of their own, whatever sbatch calls
// them, and three that differ in a number alone say what the next one takes.
func TestSearchesByHandAreKnown(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x2xA100-SXM4-80GB")
	sbatch := func(options, gpuMem string, seed int) uint64 {
		t.Helper()
		r := c.runOf("/bin/sh", c.socket, alice, "-c", fmt.Sprintf("%s --parsable -D / -o /dev/null -t 20 --gres=gpu:1 %s <<'EOF'\n#!/bin/sh\nSEED=%d %s sim-job --gpu-mem %s --gpu-util 20 --seconds 1\nEOF\n",
			appletOf(berth, "sbatch"), options, seed, berth, gpuMem))
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		return parseID(t, r.stdout)
	}
	next, other := sbatch("-H", "3GiB", 4), sbatch("-H", "30GiB", 4)
	for seed := range 3 {
		c.await(sbatch("", "3GiB", seed), "COMPLETED")
	}
	c.eventually("what waits is known by its program", func() bool {
		j := c.show(next)
		return j.Predicted.Source == "program" && j.Predicted.GPUMemMiB >= 3<<10 && j.Predicted.GPUMemP95MiB < 8<<10
	})
	if j := c.show(other); j.Predicted.Source != "none" {
		t.Errorf("another program is known: %+v", j.Predicted)
	}
	c.run("release", fmt.Sprint(other), fmt.Sprint(next))
	for _, id := range []uint64{next, other} {
		if j := c.await(id, "COMPLETED", "FAILED", "OUT_OF_MEMORY"); j.State != "COMPLETED" || len(j.Attempts) != 1 {
			t.Errorf("job %d: %s after %d attempts: %s", id, j.State, len(j.Attempts), j.Reason)
		}
	}
}
