package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestNobodyFillsTheScripts: the files that a job is given to write to, and those that it
// owns and makes writable, take no room of other jobs' scripts and of the system's in /run.
func TestNobodyFillsTheScripts(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4")
	dir := scriptDir(t)
	// Both are looked at in the end: what was written as progress, the agent removes.
	fill := `for f in $BERTH_PROGRESS $BERTH_CREDENTIAL; do chmod 600 $f; head -c 200M /dev/zero >>$f 2>/dev/null; done; stat -c %s $BERTH_PROGRESS $BERTH_CREDENTIAL`
	if r := c.runAs(1001, "submit", "--wait", "--quiet", "-o", dir+"/fill.out", "--", "sh", "-c", fill); r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	sum, sizes := 0, strings.Fields(read(t, filepath.Join(dir, "fill.out")))
	for _, text := range sizes {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if len(sizes) != 2 || sum > 64<<20 {
		t.Errorf("a job filled %d MiB: %q", sum>>20, sizes)
	}
	script := filepath.Join(dir, "job.sh")
	write(t, script, "#!/bin/sh\necho well\n")
	if r := c.runAs(1002, "submit", "--wait", "--quiet", "-o", dir+"/other.out", script); r.code != 0 || read(t, filepath.Join(dir, "other.out")) != "well\n" {
		t.Errorf("another's script: exit code %d: %s", r.code, r.stderr)
	}
	c.eventually("the end of what was mounted for them", func() bool {
		mounts, err := os.ReadFile("/proc/self/mounts")
		return err == nil && !bytes.Contains(mounts, []byte(filepath.Join(c.dir, "n1-scripts")+"/"))
	})
}
