package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// plug is where the programs that power nodes down and up find the agents of a cluster:
// they stop and start those, which is what pulling a plug looks like to a coordinator.
type plug struct {
	dir  string
	gate string // nobody comes up before it is there
}

func newPlug(t *testing.T) *plug {
	t.Helper()
	p := &plug{dir: openDir(t)}
	p.gate = filepath.Join(p.dir, "gate")
	for name, text := range map[string]string{
		"down": `echo down $1 >> %[1]s/log
if [ -e %[1]s/$1.pid ]; then kill $(cat %[1]s/$1.pid) || true; rm %[1]s/$1.pid; fi`,
		"up": `echo up $1 >> %[1]s/log
until [ -e %[1]s/gate ]; do sleep 0.02; done
[ -e %[1]s/$1.pid ] && exit 0
setsid %[2]s agent --config $(cat %[1]s/cluster)/$1/agent.yaml >> $(cat %[1]s/cluster)/$1/log 2>&1 < /dev/null &
echo $! > %[1]s/$1.pid`,
	} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(fmt.Sprintf("#!/bin/sh\n"+text+"\n", p.dir, berth)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *plug) env() []string {
	return []string{
		"BERTH_POWER_SAVING_SUSPEND_PROGRAM=" + filepath.Join(p.dir, "down"), "BERTH_POWER_SAVING_RESUME_PROGRAM=" + filepath.Join(p.dir, "up"),
		"BERTH_POWER_SAVING_PROGRAM_TIMEOUT=1h", "BERTH_POWER_SAVING_SUSPEND_TIMEOUT=1h", "BERTH_POWER_SAVING_RESUME_TIMEOUT=1h",
		"BERTH_POWER_SAVING_IDLE=1s", "BERTH_POWER_SAVING_PARTITIONS=sleepy", "BERTH_LEASE_AGENT=5s",
	}
}

// of makes the programs know a cluster, and ends what they started when the test does.
func (p *plug) of(c *cluster, nodes ...string) {
	c.t.Helper()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	write("cluster", c.dir)
	for _, n := range nodes {
		write(n+".pid", strconv.Itoa(c.daemonPID("agent", n)))
	}
	c.t.Cleanup(func() {
		for _, n := range nodes {
			if pid := p.pid(n); pid > 0 {
				c.end(pid, syscall.SIGTERM)
			}
		}
	})
}

// pid is the agent of a node, 0 while it is off.
func (p *plug) pid(node string) int {
	data, err := os.ReadFile(filepath.Join(p.dir, node+".pid"))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}

// did is what the programs were called for.
func (p *plug) did() string {
	data, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return strings.Join(strings.Fields(string(data)), " ")
}

// TestPowerSaving: an idle node is powered down and no fault of the cluster's; a job that
// only it can run wakes it, through a leader that did not put it to sleep. What an
// administrator powers down stays down until one powers it up.
func TestPowerSaving(t *testing.T) {
	t.Parallel()
	p := newPlug(t)
	c := startClusterWith(t, p.env(), "--coordinators", "3", "--nodes", "2x1xA100-SXM4-80GB")
	p.of(c, "n1", "n2")
	state := func(node, want string) {
		t.Helper()
		c.eventually(node+" is "+want, func() bool {
			return strings.Contains(c.run("node", "list", node), want)
		})
	}
	c.run("partition", "set", "sleepy", "--nodes", "n1")
	state("n1", "powered-down")
	state("n2", "ready")
	if out := c.run(); !strings.Contains(out, "0 of 2 held, 1 powered down") || strings.Contains(out, "node n1 is") {
		t.Errorf("berth:\n%s", out)
	}
	c.kill(c.leader().PID)
	id := c.submit("-p", "sleepy", "-D", openDir(t), "--gpus", "1", "--", "true")
	state("n1", "powering-up")
	if out := c.run("why", fmt.Sprint(id)); !strings.Contains(out, "waits for node n1 to be powered up") {
		t.Errorf("berth why:\n%s", out)
	}
	if out := c.run("sinfo", "-p", "sleepy", "-h", "-o", "%N %t"); out != "n1 idle#\n" {
		t.Errorf("sinfo: %q", out)
	}
	if err := os.WriteFile(p.gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if j := c.await(id, "COMPLETED"); j.Node != "n1" {
		t.Errorf("it ran on %q", j.Node)
	}
	if out := c.run("node", "power-down", "n2", "--reason", "moves"); !strings.Contains(out, "node n2: powering-down") {
		t.Error(out)
	}
	state("n2", "powered-down")
	state("n1", "powered-down") // again, as it was idle
	if out := c.run("node", "show", "n2"); !strings.Contains(out, "by an administrator: moves") {
		t.Errorf("berth node show:\n%s", out)
	}
	c.run("node", "power-up", "n2")
	state("n2", "ready")
	// A new leader may have run them again.
	if did := p.did(); !strings.HasPrefix(did, "down n1") || strings.LastIndex(did, "down n1") < strings.Index(did, "up n1") || !strings.HasSuffix(did, "up n2") {
		t.Error(did)
	}
}
