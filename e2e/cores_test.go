package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

const either = `#!/bin/sh
#BERTH --gpus 1 --cpus 1 --objective latency --model alexnet --batch 1 --steps 10
echo "$BERTH_DEVICE, sees <$CUDA_VISIBLE_DEVICES>, $BERTH_JOB_GPUS GPUs" >device
`

// TestCoresInPlaceOfABusyGPU: while the only GPU is busy for hours, a script
// that can do without one runs on cores at once, and is told so; the same
// script without leave to waits for the GPU.
func TestCoresInPlaceOfABusyGPU(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4,1xcpu")
	dir, other := openDir(t), openDir(t)
	write(t, filepath.Join(dir, "either.sh"), either)
	busy := c.submit("-D", dir, "--gpus", "1", "--exclusive", "--expect", "10h", "--", "sleep", "600")
	c.await(busy, "RUNNING")
	waits := c.submit("-D", other, "--quiet", filepath.Join(dir, "either.sh"))
	write(t, filepath.Join(dir, "may.sh"), strings.Replace(either, "--gpus 1", "--gpus 1 --or-cpu", 1))
	may := c.submit("-D", dir, "--quiet", filepath.Join(dir, "may.sh"))
	c.await(may, "COMPLETED")
	if got := lines(filepath.Join(dir, "device")); len(got) != 1 || got[0] != "cpu, sees <>, 0 GPUs" {
		t.Errorf("the script wrote %q", got)
	}
	if out := c.run("show", fmt.Sprint(may)); !strings.Contains(out, "none of 1, runs on cores (cpu)") || !strings.Contains(out, "in place of 1 GPU, the best for latency") {
		t.Errorf("shown as\n%s", out)
	}
	c.await(waits, "QUEUED")
	c.run("cancel", fmt.Sprint(busy))
	c.eventually("the other to find the GPU", func() bool { return len(lines(filepath.Join(other, "device"))) == 1 })
	if got := lines(filepath.Join(other, "device")); !strings.HasPrefix(got[0], "gpu, sees <") || !strings.HasSuffix(got[0], ">, 1 GPUs") {
		t.Errorf("on the GPU the script wrote %q", got)
	}
}
