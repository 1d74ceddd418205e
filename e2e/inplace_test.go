package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// trainedStep is a line of what train_elastic.py writes: a step with so many workers, or
// where a group of them started.
type trainedStep struct {
	what        string
	step, world int
	loss        float64
}

func trainedSteps(t *testing.T, path string) (out []trainedStep) {
	t.Helper()
	for _, line := range lines(path) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue // it is being written
		}
		s := trainedStep{what: f[0]}
		s.step, _ = strconv.Atoi(f[1])
		s.world, _ = strconv.Atoi(f[2])
		if len(f) > 3 {
			s.loss, _ = strconv.ParseFloat(f[3], 64)
		}
		out = append(out, s)
	}
	return out
}

// TestATrainingGrowsAndShrinksInPlace: PyTorch's own elastic agent trains on one node, goes
// on with three when they are free, gives one up to a job that waits, and has it back when
// that ended: all in one attempt, with falling loss, and no step is done again but those
// since the last save.
func TestATrainingGrowsAndShrinksInPlace(t *testing.T) {
	t.Parallel()
	needTorch(t)
	if name, err := os.Hostname(); err != nil {
		t.Fatal(err)
	} else if _, err := net.DefaultResolver.LookupHost(t.Context(), name); err != nil {
		t.Skipf("PyTorch's workers meet by the machine's own name, which nothing resolves here: %v", err)
	}
	const every = 10
	work := openDir(t)
	script, err := os.ReadFile("testdata/train_elastic.py")
	if err == nil {
		err = os.WriteFile(filepath.Join(work, "train.py"), script, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := startClusterWith(t, []string{"BERTH_SCHEDULING_PREEMPT_AFTER=1s", "BERTH_SCHEDULING_PREEMPT_EVERY=1s"}, "--nodes", "3x1xT4")
	until := func(name string) []string {
		return []string{"--", "sh", "-c", "until [ -e " + filepath.Join(work, name) + " ]; do sleep 0.2; done"}
	}
	log := filepath.Join(work, "steps.log")
	runs := func(what string, world, more int) int {
		t.Helper()
		from := len(trainedSteps(t, log))
		c.eventually(what, func() bool {
			n := 0
			for _, s := range trainedSteps(t, log)[from:] {
				if s.what == "step" && s.world == world {
					n++
				}
			}
			return n >= more
		})
		all := trainedSteps(t, log)
		return all[len(all)-1].step
	}
	others := c.submit(append([]string{"--nodes", "2", "--gpus", "1", "--exclusive"}, until("others")...)...)
	c.await(others, "RUNNING")
	// -r 1 -t 1: with Python 3.11 and later PyTorch 1.13 does not take its own defaults.
	id := c.submit("-D", work, "--nodes", "1-3", "--gpus", "1", "--exclusive", "--checkpoint", "TERM@20s", "--in-place", "--batch-scaling", "linear",
		"--", "/usr/bin/python3", "-m", "torch.distributed.run", "--nproc_per_node", "1", "-r", "1", "-t", "1", "train.py", work, "1000000", fmt.Sprint(every))
	runs("it to train on one node", 1, 3*every)
	write(t, filepath.Join(work, "others"), "")
	runs("it to train on three", 3, 3*every)
	one := c.submit(append([]string{"--gpus", "1", "--exclusive"}, until("one")...)...)
	c.await(one, "RUNNING")
	runs("it to train on two", 2, 3*every)
	if out := c.run("queue"); strings.Count(out, " R ") != 2 {
		t.Errorf("both are to run:\n%s", out)
	}
	write(t, filepath.Join(work, "one"), "")
	runs("it to train on three again", 3, 3*every)
	write(t, filepath.Join(work, "end"), "")
	if j := c.await(id, "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED"); j.State != "COMPLETED" {
		t.Fatalf("it ended %s (%s)", j.State, j.Reason)
	}
	out := c.run("show", fmt.Sprint(id))
	for _, want := range []string{"join and leave while it runs", "1 to 3 at", "3 to 2 at", "2 to 3 at", fmt.Sprintf("job %d waits for some", one), "(given up)"} {
		if !strings.Contains(out, want) {
			t.Errorf("not shown: %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "  2  ") && strings.Contains(out, "begins again") {
		t.Errorf("it began again:\n%s", out)
	}
	all, last, starts := trainedSteps(t, log), 0, 0
	for _, s := range all {
		switch {
		case s.what == "start":
			starts++
			if lost := last - s.step; lost < 0 || lost > every {
				t.Errorf("at step %d it starts anew at %d, and saves every %d", last, s.step, every)
			}
		case s.what == "step" && s.step != last+1 && s.step > last:
			t.Errorf("after step %d comes %d", last, s.step)
		}
		last = s.step
	}
	mean := func(of []trainedStep) (sum float64) {
		n := 0
		for _, s := range of {
			if s.what == "step" {
				sum, n = sum+s.loss, n+1
			}
		}
		return sum / float64(max(1, n))
	}
	if first, end := mean(all[:every]), mean(all[len(all)-every:]); !(end < first/4) {
		t.Errorf("the loss went from %g to %g: it did not learn", first, end)
	} else {
		t.Logf("%d steps, %d starts, loss %g to %g", last, starts, first, end)
	}
}
