package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/soaktest"
)

// footprint is what a process uses of its machine.
type footprint struct {
	cpu   time.Duration
	rssMB float64
}

func footprintOf(t *testing.T, pid int) footprint {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	pages, err3 := strconv.ParseInt(f[21], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatalf("stat of the agent: %q", stat)
	}
	const hz = 100 // USER_HZ, on every architecture that Go runs on
	return footprint{time.Duration(user+system) * time.Second / hz, float64(pages) * float64(os.Getpagesize()) / 1e6}
}

// TestSoakAgentFootprint measures a real agent: at rest, and with 64 jobs, of
// which 48 share 16 simulated cards; a quarter of them outside of the full form. CPU is judged over the minutes of the full
// form only: a second says more of what else the machine does.
func TestSoakAgentFootprint(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x16xA100-SXM4-80GB")
	window := time.Duration(soaktest.Times(t, 1, 120)) * time.Second
	agent := c.daemonPID("agent", "n1")
	measure := func(what string, cpuMost, rssMost float64) {
		before := footprintOf(t, agent)
		began := time.Now()
		time.Sleep(window) // the time is what is measured
		after := footprintOf(t, agent)
		cpu := 100 * (after.cpu - before.cpu).Seconds() / time.Since(began).Seconds()
		t.Logf("soak: %s, over %s: %.2f %% of a core (at most %.1f), %.1f MB (at most %.0f)", what, window, cpu, cpuMost, after.rssMB, rssMost)
		// A tick is the least that the kernel counts.
		tick := 100 * 0.02 / window.Seconds()
		if tooMuch := window > time.Minute && cpu > cpuMost+tick; tooMuch || after.rssMB > rssMost {
			t.Errorf("%s: %.2f %% of a core and %.1f MB are more than %.1f %% and %.0f MB", what, cpu, after.rssMB, cpuMost, rssMost)
		}
	}
	measure("at rest", 0.5, 60)
	shared, others := 12, 4
	if window > time.Minute {
		shared, others = 48, 16
	}
	var ids []uint64
	for i := range shared + others {
		args := []string{"submit", "--parsable", "-D", "/tmp", "-o", "/dev/null", "--cpus", "0.5", "--mem", "256MiB", "--time", "30m"}
		job := []string{"--", "sleep", "1000"}
		if i < shared {
			args = append(args, "--gpus", "1", "--gpu-mem", "8GiB", "--gpu-util", "30")
			job = []string{"--", berth, "sim-job", "--gpu-mem", "4GiB", "--gpu-util", "25", "--seconds", "1000"}
		}
		r := c.runAs(alice, append(args, job...)...)
		if r.code != 0 {
			t.Fatalf("submit: %d %s", r.code, r.stderr)
		}
		ids = append(ids, parseID(t, r.stdout))
	}
	for _, id := range ids {
		c.await(id, "RUNNING")
	}
	if window > time.Minute {
		time.Sleep(15 * time.Second) // jobs are looked at more often while they are young
	}
	measure(fmt.Sprintf("with %d jobs", shared+others), 2, 120)
	args := []string{"cancel"}
	for _, id := range ids {
		args = append(args, strconv.FormatUint(id, 10))
	}
	if r := c.runAs(alice, args...); r.code != 0 {
		t.Errorf("cancel: %d %s", r.code, r.stderr)
	}
	for _, id := range ids {
		c.await(id, "CANCELLED")
	}
}
