package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// card is a GPU as berth gpu list -o json shows it.
type card struct {
	Index       int      `json:"index"`
	UUID        string   `json:"uuid"`
	State       string   `json:"state"`
	StateReason string   `json:"state_reason"`
	Drain       bool     `json:"drain"`
	Shares      int      `json:"shares"`
	Jobs        []uint64 `json:"jobs"`
}

func (c *cluster) card(index int) card {
	c.t.Helper()
	var all []card
	if err := json.Unmarshal([]byte(c.run("gpu", "list", "-o", "json")), &all); err != nil {
		c.t.Fatal(err)
	}
	for _, g := range all {
		if g.Index == index {
			return g
		}
	}
	c.t.Fatalf("there is no GPU %d: %+v", index, all)
	return card{}
}

func (c *cluster) awaitCard(index int, state string) card {
	c.t.Helper()
	var g card
	c.eventually(fmt.Sprintf("GPU %d %s", index, state), func() bool {
		g = c.card(index)
		return g.State == state
	})
	return g
}

// cardOf is the GPU that a running job has.
func (c *cluster) cardOf(id uint64) int {
	c.t.Helper()
	for i := range 2 {
		for _, j := range c.card(i).Jobs {
			if j == id {
				return i
			}
		}
	}
	c.t.Fatalf("job %d is on no GPU", id)
	return 0
}

// killLeader waits for the next one.
func (c *cluster) killLeader() {
	c.t.Helper()
	old := c.leader()
	c.kill(old.PID)
	c.eventually("another leader", func() bool { return c.leader().ID != old.ID })
}

// kmsg makes a file in place of the kernel's log, and returns the environment
// that has agents read it, and what writes a line of the driver into it.
func kmsg(t *testing.T) (env []string, xid func(code, card int)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	seq := 0
	return []string{"BERTH_GPUS_HEALTH_KMSG=" + path, "BERTH_GPUS_HEALTH_WITHIN=1s"}, func(code, card int) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		seq++
		if _, err := fmt.Fprintf(f, "4,%d,0,-;NVRM: Xid (PCI:0000:%02x:00): %d, pid='<unknown>', name=<unknown>, words\n", seq, card+1, code); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFaultTakesOneGPU: an Xid in the kernel's log ends the job on that card,
// not for its user's fault, and closes that card alone, through the death of
// the leader and of the agent.
func TestAFaultTakesOneGPU(t *testing.T) {
	t.Parallel()
	env, xid := kmsg(t)
	c := startClusterWith(t, env, "--coordinators", "3", "--nodes", "1x2xT4")
	dir := openDir(t)
	whole := func(seconds string) uint64 {
		return c.submit("-D", dir, "--gpus", "1", "--exclusive", "--", berth, "sim-job", "--gpu-mem", "2GiB", "--seconds", seconds)
	}
	struckJob, other := whole("600"), whole("600")
	c.await(struckJob, "RUNNING")
	c.await(other, "RUNNING")
	at := c.cardOf(struckJob)
	xid(79, at)
	if j := c.await(struckJob, "NODE_FAIL"); j.Reason != "GPUFault" {
		t.Errorf("ended for %s", j.Reason)
	}
	if out := c.run("show", fmt.Sprint(struckJob)); !strings.Contains(out, "Xid 79: the GPU fell off the bus") {
		t.Errorf("its owner is not told of the Xid:\n%s", out)
	}
	c.awaitCard(at, "lost")
	waits := whole("1")
	c.killLeader()
	c.kill(c.daemonPID("agent", "n1"))
	c.restart("agent", "n1")
	c.awaitCard(at, "lost")
	if j := c.show(waits); j.State != "PENDING" && j.State != "QUEUED" {
		t.Errorf("the next job is %s beside a card that is lost", j.State)
	}
	if out := c.run("why", fmt.Sprint(waits)); !strings.Contains(out, "1 GPU out of service") {
		t.Errorf("why it waits:\n%s", out)
	}
	c.run("gpu", "resume", fmt.Sprintf("n1/%d", at))
	if j := c.await(waits, "COMPLETED", "FAILED", "NODE_FAIL"); j.State != "COMPLETED" {
		t.Errorf("on the resumed card it ended %s (%s)", j.State, j.Reason)
	}
	c.await(other, "RUNNING")
	out := c.run("node", "show", "n1")
	for _, want := range []string{"lost", "Xid 79: the GPU fell off the bus", "resumed"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the history:\n%s", want, out)
		}
	}
	t.Logf("node show:\n%s", out)
}

// TestADrainedGPU: the card keeps its job and gets no other, whoever leads.
func TestADrainedGPU(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x2xT4")
	dir := openDir(t)
	job := func(script string) uint64 {
		return c.submit("-D", dir, "--gpus", "1", "--exclusive", "--", "sh", "-c", script)
	}
	untilTold := "while [ ! -e " + dir + "/end ]; do sleep 0.05; done"
	keeps := job(untilTold)
	c.await(keeps, "RUNNING")
	at := c.cardOf(keeps)
	if r := c.runAs(alice, "gpu", "drain", fmt.Sprintf("n1/%d", at), "--reason", "mine"); r.code == 0 {
		t.Errorf("a user drained a GPU: %s", r.stdout)
	}
	if out := c.run("gpu", "drain", fmt.Sprintf("n1/%d", at), "--reason", "new fans"); !strings.Contains(out, "draining, 1 job on it") {
		t.Errorf("drain: %s", out)
	}
	c.killLeader()
	for range 3 {
		next := job("true")
		if j := c.await(next, "COMPLETED", "FAILED"); j.State != "COMPLETED" {
			t.Errorf("job %d ended %s (%s)", next, j.State, j.Reason)
		}
	}
	end := func() {
		if err := os.WriteFile(dir+"/end", nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	end()
	if j := c.await(keeps, "COMPLETED", "FAILED", "NODE_FAIL"); j.State != "COMPLETED" {
		t.Errorf("the job on the drained card ended %s (%s)", j.State, j.Reason)
	}
	if g := c.card(at); !g.Drain || g.Shares != 0 {
		t.Errorf("the card is %+v", g)
	}
	t.Logf("gpu list:\n%s", c.run("gpu", "list"))
	c.run("gpu", "resume", fmt.Sprintf("n1/%d", at))
	if err := os.Remove(dir + "/end"); err != nil {
		t.Fatal(err)
	}
	two := []uint64{job(untilTold), job(untilTold)}
	c.await(two[0], "RUNNING")
	c.await(two[1], "RUNNING")
	end()
	c.await(two[0], "COMPLETED")
	c.await(two[1], "COMPLETED")
}

// TestAProcessThatEscapes: a process that left its job and holds GPU memory
// keeps the card, and not the job's end from being known.
func TestAProcessThatEscapes(t *testing.T) {
	t.Parallel()
	env, _ := kmsg(t)
	c := startClusterWith(t, env, "--nodes", "1x2xT4")
	dir := openDir(t)
	id := c.submit("-D", dir, "--gpus", "1", "--gpu-mem", "4GiB", "--", "sh", "-c", "env > "+dir+"/env; while [ ! -e "+dir+"/end ]; do sleep 0.05; done; exit 3")
	c.await(id, "RUNNING")
	at := c.cardOf(id)
	var jobEnv []string
	c.eventually("the job's environment", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "env"))
		jobEnv = strings.Split(string(data), "\n")
		return err == nil && strings.Contains(string(data), "BERTH_ATTEMPT=")
	})
	escaped := exec.Command(berth, "sim-job", "--gpu-mem", "2GiB", "--seconds", "600")
	escaped.Env = append(os.Environ(), jobEnv...)
	if err := escaped.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		if escaped.ProcessState == nil {
			_ = escaped.Process.Kill() // it may be gone
			_ = escaped.Wait()
		}
	}
	t.Cleanup(end)
	c.eventually("it holds memory", func() bool { return strings.Contains(c.run("gpu", "list", "-o", "json"), `"measured_used_mib": 2`) })
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if j := c.await(id, "FAILED", "COMPLETED"); j.State != "FAILED" || j.code() != 3 {
		t.Errorf("ended %s with %d", j.State, j.code())
	}
	g := c.awaitCard(at, "quarantined")
	if !strings.Contains(g.StateReason, fmt.Sprintf("process %d of it holds", escaped.Process.Pid)) {
		t.Errorf("quarantined: %s", g.StateReason)
	}
	t.Logf("gpu list:\n%s", c.run("gpu", "list"))
	end()
	c.awaitCard(at, "ok")
}
