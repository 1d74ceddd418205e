package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// takesHostMemory holds 600 MiB at once. Partitions here have less of it by default
// than jobs get elsewhere: to touch gigabytes takes some machines a minute.
const takesHostMemory = "dd if=/dev/zero of=/dev/null bs=600M count=1 iflag=fullblock"

// TestHostMemoryIsPredicted: a job of a known model that says nothing of host memory
// gets what is predicted, and not the default, which this one is larger than. What is
// declared stays final.
func TestHostMemoryIsPredicted(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xA100-SXM4-80GB")
	c.run("partition", "set", "gpu", "--nodes", "ALL", "--default", "--def-mem-per-gpu", "512M")
	dir := openDir(t)
	model := []string{"-D", dir, "--model", "resnet50", "--batch", "64", "--gpus", "1"}
	free := c.submit(append(model, "--", "sh", "-c", takesHostMemory)...)
	tight := c.submit(append(model, "--mem", "512M", "--", "sh", "-c", takesHostMemory)...)
	if j := c.await(free, "COMPLETED", "FAILED", "OUT_OF_MEMORY"); j.State != "COMPLETED" {
		t.Errorf("job %d: %s (%s), want its predicted memory to hold it\n%s", free, j.State, j.Reason, c.run("show", fmt.Sprint(free)))
	}
	if j := c.await(tight, "COMPLETED", "FAILED", "OUT_OF_MEMORY"); j.State != "OUT_OF_MEMORY" {
		t.Errorf("job %d: %s (%s), want the declared 512 MiB to be final", tight, j.State, j.Reason)
	}
}

// TestHostMemoryIsRaisedAndLearnt: a job that needs more than is predicted runs again
// with more and ends well, and the next equal one has enough at once.
func TestHostMemoryIsRaisedAndLearnt(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xA100-SXM4-80GB")
	c.run("partition", "set", "gpu", "--nodes", "ALL", "--default", "--def-mem-per-gpu", "512M", "--least-mem", "512M")
	dir := openDir(t)
	job := []string{"-D", dir, "--gpus", "1", "--", "sh", "-c", takesHostMemory}
	for n, attempts := range []int{2, 1} {
		id := c.submit(job...)
		if j := c.await(id, "COMPLETED", "FAILED", "OUT_OF_MEMORY"); j.State != "COMPLETED" {
			t.Fatalf("run %d: %s (%s), want it to end well\n%s", n+1, j.State, j.Reason, c.run("show", fmt.Sprint(id)))
		}
		out := c.run("show", fmt.Sprint(id))
		if again := strings.Contains(out, "it declared none, and runs again with 1024 MiB"); again != (attempts > 1) {
			t.Errorf("run %d: want %d attempts\n%s", n+1, attempts, out)
		}
	}
}

// TestHostMemoryOfAPartition: where nothing is predicted, a partition's default for each
// GPU is what a job gets.
func TestHostMemoryOfAPartition(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xA100-SXM4-80GB")
	c.run("partition", "set", "gpu", "--nodes", "ALL", "--default", "--def-mem-per-gpu", "3G", "--def-cpus-per-gpu", "2")
	dir := openDir(t)
	id := c.submit("-D", dir, "--gpus", "1", "--", "sh", "-c", "test $BERTH_MEM_MIB = 3072 && test $BERTH_CPUS = 2")
	if j := c.await(id, "COMPLETED", "FAILED", "OUT_OF_MEMORY"); j.State != "COMPLETED" {
		t.Errorf("%s (%s), want 3 GiB and 2 cores\n%s", j.State, j.Reason, c.run("show", fmt.Sprint(id)))
	}
}

// TestAllMemoryOfANode: what asks for all memory has it, on a node of its own also
// without asking, unless it says how much.
func TestAllMemoryOfANode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xA100-SXM4-80GB")
	c.run("partition", "set", "gpu", "--nodes", "ALL", "--default", "--def-mem-per-gpu", "512M", "--least-mem", "512M")
	all := strings.TrimSpace(c.run("sinfo", "-h", "-o", "%m"))
	dir := openDir(t)
	for _, tc := range []struct {
		ask  []string
		want string
	}{
		{[]string{"--mem=0"}, all},
		{[]string{"--mem-per-cpu=0"}, all},
		{[]string{"--exclusive"}, all},
		{[]string{"--exclusive", "--mem=0"}, all},
		{[]string{"--exclusive", "--mem=300M"}, "300"},
	} {
		args := append([]string{"sbatch", "--parsable", "-D", dir, "--gpus=1"}, tc.ask...)
		id := parseID(t, c.run(append(args, "--wrap", "echo it has $SLURM_MEM_PER_NODE; test $SLURM_MEM_PER_NODE -lt 600 || "+takesHostMemory)...))
		if j := c.await(id, "COMPLETED", "FAILED", "OUT_OF_MEMORY"); j.State != "COMPLETED" {
			t.Errorf("%q: %s (%s)\n%s", tc.ask, j.State, j.Reason, c.run("show", fmt.Sprint(id)))
		}
		if got, want := read(t, fmt.Sprintf("%s/slurm-%d.out", dir, id)), "it has "+tc.want+"\n"; !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q, want %q", tc.ask, got, want)
		}
	}
	if out := c.run("show", "3"); !strings.Contains(out, "1 GPU, all cores and memory of its nodes, with no other jobs there") {
		t.Errorf("show does not say what --exclusive is:\n%s", out)
	}
	if out := c.run("show", fmt.Sprint(c.submit("-D", dir, "--gpus", "1", "--mem", "all", "--", "true"))); !strings.Contains(out, "1 GPU, memory 128.0 GiB") {
		t.Errorf("show does not say what --mem all is:\n%s", out)
	}
}
