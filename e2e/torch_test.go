package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// hasTorch fails where PyTorch is not installed, without the seconds that it
// takes to import it.
const hasTorch = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"

// needTorch skips where there is no PyTorch, and fails in CI.
func needTorch(t *testing.T) {
	t.Helper()
	out, err := exec.Command("/usr/bin/python3", "-c", hasTorch).CombinedOutput()
	if err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("PyTorch is not installed (%v: %s); on Debian: apt-get install python3-torch", err, out)
	}
	t.Skip("PyTorch is not installed; on Debian: apt-get install python3-torch")
}

var trained = regexp.MustCompile(`(?s)^loss ([0-9.]+) ([0-9.]+)\nanon_mib ([0-9]+)\ncpu_s ([0-9.]+)\nuid ([0-9]+) (read-only|writable)\n$`)

// algebraDirs are the folders of the BLAS and LAPACK that Debian chose by links
// in /etc, whichever they are; an image without that /etc has to be told them.
func algebraDirs(t *testing.T) []string {
	t.Helper()
	var dirs []string
	for _, pattern := range []string{"/usr/lib/*/libblas.so.3", "/usr/lib/*/liblapack.so.3"} {
		links, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links {
			real, err := filepath.EvalSymlinks(link)
			if dir := filepath.Dir(real); err == nil && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// TestARealProgramTrains: PyTorch trains a small network on the node's own
// files and in an image, each under its caps, and what is shown of it is what
// the program itself saw. The image is busybox; Python, PyTorch and their
// libraries are the node's /usr, mounted read-only by the node's allow-list. So
// nothing is copied, and mounts are tried on a program that needs hundreds of
// files. A cap below what PyTorch needs ends it as out of memory.
func TestARealProgramTrains(t *testing.T) {
	t.Parallel()
	needBusybox(t)
	needTorch(t)
	work := openDir(t)
	script, err := os.ReadFile("testdata/train.py")
	if err == nil {
		err = os.WriteFile(filepath.Join(work, "train.py"), script, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := startClusterWith(t, []string{"BERTH_CONTAINERS_MOUNTS=/usr," + work, "BERTH_CONTAINERS_HARD_CPU=true"}, "--runtime", "containerd", "--nodes", "cpu", "--busybox")
	train := []string{"--", "/usr/bin/python3", filepath.Join(work, "train.py"), "500", "40"}
	caps := []string{"submit", "--parsable", "-D", work, "--mem", "700M", "--cpus", "1", "--time", "30m"}
	image := []string{"--image", busyboxImage, "--mount", "/usr:/usr:ro", "--mount", work + ":" + work, "--net", "none", "--read-only"}
	// What lies in /usr is found through links of / and of /etc.
	for _, dir := range []string{"/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu"} {
		if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
			image = append(image, "--mount", real+":"+dir+":ro")
		}
	}
	if dirs := algebraDirs(t); len(dirs) > 0 {
		image = append(image, "--export", "ALL,LD_LIBRARY_PATH="+strings.Join(dirs, ":"))
	}
	ids := map[string]uint64{}
	for name, extra := range map[string][]string{"host": nil, "image": image} {
		args := append(append(append([]string(nil), caps...), extra...), train...)
		r := c.runAs(alice, args...)
		if r.code != 0 {
			t.Fatalf("%s: submit: %s", name, r.stderr)
		}
		ids[name] = parseID(t, r.stdout)
	}
	small := c.submit(append([]string{"-D", work, "--mem", "64M"}, train...)...)
	for name, id := range ids {
		j := c.await(id, "COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT")
		var data []byte
		c.eventually(name+": its output", func() bool {
			data, _ = os.ReadFile(filepath.Join(work, fmt.Sprintf("berth-%d.out", id)))
			return j.State != "COMPLETED" || trained.Match(data)
		})
		m := trained.FindSubmatch(data)
		if m == nil {
			t.Fatalf("%s: ended %s (%s):\n%s", name, j.State, j.Reason, data)
		}
		num := func(i int) float64 {
			v, err := strconv.ParseFloat(string(m[i]), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		if first, last := num(1), num(2); last > first/2 {
			t.Errorf("%s: the loss went from %g to %g: it did not learn", name, first, last)
		}
		if string(m[5]) != strconv.Itoa(alice) || string(m[6]) != "read-only" {
			t.Errorf("%s: ran as uid %s with /usr %s", name, m[5], m[6])
		}
		// The group is charged with the program's own memory, and with what of
		// its files nobody had loaded before.
		got := j.Measured
		if anon := num(3); float64(got.HostMemMiB) < 0.8*anon || got.HostMemMiB > 700 {
			t.Errorf("%s: %d MiB of host memory are shown, the program held %g at its end, under a cap of 700", name, got.HostMemMiB, anon)
		}
		cpu := float64(got.CPUMilli) / 1000 * got.Seconds
		if own := num(4); cpu < 0.8*own || cpu > 1.3*own+1 {
			t.Errorf("%s: %.2f s of CPU are shown (%d thousandths of a core for %.1f s), the program used %g", name, cpu, got.CPUMilli, got.Seconds, own)
		}
		t.Logf("%s: loss %s to %s; shown are %d MiB of memory and %.2f s of CPU in %.1f s; the program saw %s MiB of its own and %s s",
			name, m[1], m[2], got.HostMemMiB, cpu, got.Seconds, m[3], m[4])
	}
	if j := c.await(small, "OUT_OF_MEMORY", "COMPLETED", "FAILED"); j.State != "OUT_OF_MEMORY" || j.Reason != "OutOfHostMemory" {
		t.Errorf("with 64 MiB it ended %s (%s)", j.State, j.Reason)
	}
}
