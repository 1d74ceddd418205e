package containerdrt

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/soaktest"
)

// TestSoakStartOverhead starts the same program of the same image by ctr and by
// the runtime in turns, and compares the medians: from nothing to a process
// that runs. Among the other tests it only shows that both do.
func TestSoakStartOverhead(t *testing.T) {
	require(t)
	ctr, err := exec.LookPath("ctr")
	if err != nil {
		t.Skip("needs ctr: ", err)
	}
	b := newBench(t)
	n := soaktest.Times(t, 2, 100)
	var byCtr, host, image []time.Duration
	for i := range n {
		byCtr = append(byCtr, b.startByCtr(ctr, fmt.Sprintf("ctr%d", i)))
		host = append(host, b.timeStart(3*i+1, ""))
		byCtr = append(byCtr, b.startByCtr(ctr, fmt.Sprintf("ctr%d-2", i)))
		image = append(image, b.timeStart(3*i+2, b.image))
	}
	t.Logf("soak: %d starts in turns, medians: ctr run -d %s, a host job %s, an image job %s", n, median(byCtr), median(host), median(image))
	if n < 50 {
		return
	}
	for name, d := range map[string]time.Duration{"a host job": median(host), "an image job": median(image)} {
		if over := d - median(byCtr); over > 10*time.Millisecond {
			t.Errorf("%s takes %s longer than ctr run, at most 10 ms were promised", name, over)
		}
	}
}

func median(d []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[len(s)/2].Round(100 * time.Microsecond)
}

// startByCtr runs a container that sleeps, and clears it away.
func (b *bench) startByCtr(ctr, id string) time.Duration {
	b.Helper()
	run := func(args ...string) {
		b.Helper()
		args = append([]string{"--address", b.d.Socket(), "--namespace", filepath.Base(b.dir)}, args...)
		if out, err := exec.CommandContext(b.Context(), ctr, args...).CombinedOutput(); err != nil {
			b.Fatalf("ctr %v: %v: %s", args[4:], err, out)
		}
	}
	began := time.Now()
	run("run", "-d", "--null-io", b.image, id, "/bin/sleep", "1000")
	took := time.Since(began)
	run("task", "kill", "-s", "KILL", id)
	ns := []string{"--address", b.d.Socket(), "--namespace", filepath.Base(b.dir)}
	b.until("the end of "+id, func() bool {
		_ = exec.Command(ctr, append(ns, "task", "delete", "-f", id)...).Run() // it may be gone
		return exec.Command(ctr, append(ns, "container", "delete", id)...).Run() == nil
	})
	return took
}

// timeStart does the same by the runtime.
func (b *bench) timeStart(n int, image string) time.Duration {
	b.Helper()
	l := b.job(n, image, "/bin/sleep", "1000")
	if image == "" {
		l.Env = []string{"PATH=/usr/bin:/bin"}
	}
	began := time.Now()
	b.start(l)
	took := time.Since(began)
	if err := b.rt.Signal(b.Context(), l.ID, 9); err != nil {
		b.Fatal(err)
	}
	b.wait(l.ID)
	b.until("a clean end", func() bool { return b.rt.Delete(b.Context(), l.ID) == nil })
	return took
}
