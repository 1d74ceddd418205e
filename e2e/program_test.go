package e2e

import (
	"fmt"
	"testing"
	"time"
)

// TestSearchesByHandAreKnown: here-documents are scripts of their own, whatever sbatch calls
// them, and some that differ in numbers alone say what the next one takes, and for how long.
func TestSearchesByHandAreKnown(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x2xA100-SXM4-80GB")
	sbatch := func(options, gpuMem string, epochs int) uint64 {
		t.Helper()
		r := c.runOf("/bin/sh", c.socket, alice, "-c", fmt.Sprintf("%s --parsable -D / -o /dev/null -t 20 --gres=gpu:1 %s <<'EOF'\n#!/bin/sh\nEPOCHS=%d\n%s sim-job --gpu-mem %s --gpu-util 20 --seconds $EPOCHS\nEOF\n",
			appletOf(berth, "sbatch"), options, epochs, berth, gpuMem))
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		return parseID(t, r.stdout)
	}
	next, other, long := sbatch("-H", "3GiB", 4), sbatch("-H", "30GiB", 1), sbatch("-H", "3GiB", 30)
	search := func() {
		var ran []uint64
		for epochs := range 3 {
			ran = append(ran, sbatch("", "3GiB", epochs+1))
		}
		for _, id := range ran {
			c.await(id, "COMPLETED")
		}
	}
	search()
	c.eventually("what waits is known by its program", func() bool {
		j := c.show(next)
		return j.Predicted.Source == "program" && j.Predicted.GPUMemMiB >= 3<<10 && j.Predicted.GPUMemP95MiB < 8<<10
	})
	// On a loaded machine a second more or less is no news of three seconds: more runs tell.
	known := func() bool {
		j := c.show(long)
		return j.Predicted.Source == "program" && j.Predicted.Seconds > 20 && j.Predicted.Seconds < 90 && j.Predicted.TimeConfidence > 0
	}
	for range 20 {
		for range 10 {
			if known() {
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
		if known() {
			break
		}
		search()
	}
	if !known() {
		t.Errorf("ten times as many epochs do not take ten times as long: %+v", c.show(long).Predicted)
	}
	c.run("cancel", fmt.Sprint(long))
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
