package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/processrt"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
)

// site is a cluster that is set up by hand, as an operator does it.
type site struct {
	*cluster
	etc string
}

// daemon starts a daemon that ends with the test.
func (s *site) daemon(name string, args ...string) {
	s.t.Helper()
	log, err := os.Create(filepath.Join(s.etc, name+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(berth, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if s.t.Failed() {
			data, _ := os.ReadFile(log.Name())
			s.t.Logf("--- %s\n%s", name, data)
		}
	})
}

func TestASiteIsSetUpAsTheManualSays(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, as setting up a site does")
	}
	etc, err := os.MkdirTemp("", "bsite-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The keeper outlives the agent by design; here nobody comes back to it.
		if err := processrt.StopKeeper(filepath.Join(etc, "agent", "process")); err != nil {
			t.Error(err)
		}
		if err := launcher.LeaveRooms(filepath.Join(etc, "scripts")); err != nil {
			t.Error(err)
		}
		os.RemoveAll(etc)
	})
	if err := os.Chmod(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &site{cluster: &cluster{t: t, socket: filepath.Join(etc, "s.sock")}, etc: etc}
	addr, prepared := coordtest.FreeAddr(t), filepath.Join(etc, "prepared")
	s.run("cluster", "init", "--id", "hpc", "--dir", prepared, "--coordinator", "c1="+addr, "--etc", filepath.Join(prepared, "c1"))
	if r := s.runAs(0, "cluster", "init", "--id", "hpc", "--dir", prepared, "--coordinator", "c1="+addr); r.code == 0 {
		t.Error("a second init into the same directory was accepted")
	}
	s.daemon("coordinator", "coordinator", "--config", filepath.Join(prepared, "c1", "coordinator.yaml"),
		"--set", "listen.addr="+addr, "--set", "listen.socket="+s.socket, "--set", "listen.metrics=",
		"--set", "data.dir="+filepath.Join(etc, "data"), "--set", "gossip.addr=")
	s.eventually("a leader", func() bool { return s.runAs(0, "cluster", "status").code == 0 })

	token := strings.TrimSpace(s.run("token", "create", "--id", "n17"))
	token = token[strings.Index(token, "berth-join-v1."):]
	token = strings.Fields(token)[0]
	node := filepath.Join(etc, "node")
	join := []string{"agent", "join", "--node", "n17", "--coordinator", addr, "--token", token, "--dir", node, "--data-dir", filepath.Join(etc, "agent")}
	if r := s.runAs(0, append(join[:3:3], append([]string{"n18"}, append(join[4:len(join):len(join)], "--dir", filepath.Join(etc, "other"))...)...)...); r.code == 0 {
		t.Error("a token for n17 let n18 join")
	}
	s.run(join...)
	again := append(join[:len(join):len(join)], "--dir", filepath.Join(etc, "again"))
	if r := s.runAs(0, again...); r.code == 0 || !strings.Contains(r.stderr, "token") {
		t.Errorf("a token was used twice: exit code %d, %q", r.code, r.stderr)
	}
	s.daemon("agent", "agent", "--config", filepath.Join(node, "agent.yaml"),
		"--set", "runtime.kind=process", "--set", "gpus.provider=sim", "--set", "gpus.sim=1xT4",
		"--set", "gpus.sim_socket="+filepath.Join(etc, "gpu", "sock"), "--set", "listen.metrics=", "--set", "gossip.addr=",
		"--set", "cgroup.parent=/"+filepath.Base(etc), "--set", "jobs.scripts="+filepath.Join(etc, "scripts"))
	s.eventually("n17 to register", func() bool { return strings.Contains(s.runAs(0, "node", "list").stdout, "n17") })

	if r := s.runAs(0, "submit", "-D", "/tmp", "-o", "/dev/null", "--", "true"); r.code == 0 || !strings.Contains(r.stderr, "root") {
		t.Errorf("root submitted a job: exit code %d, %q", r.code, r.stderr)
	}
	if r := s.runAs(999, "submit", "-D", "/tmp", "-o", "/dev/null", "--", "true"); r.code == 0 {
		t.Error("a system account submitted a job")
	}
	if r := s.runAs(alice, "token", "create", "--id", "n99"); r.code == 0 {
		t.Error("a user made a join token")
	}
	r := s.runAs(alice, "submit", "--parsable", "-D", "/tmp", "-o", "/dev/null", "--gpus", "1", "--gpu-mem", "1GiB", "--", "true")
	if r.code != 0 {
		t.Fatalf("submit: %d %s", r.code, r.stderr)
	}
	s.await(parseID(t, r.stdout), "COMPLETED")
}

func TestDevRunsACommandAndLeavesNothing(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	if len(tmp) > 40 {
		var err error
		if tmp, err = os.MkdirTemp("", "bdev-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(tmp) })
	}
	marker := fmt.Sprintf("%d", 300+os.Getpid()%500)
	cmd := exec.Command(berth, "dev", "--nodes", "1x1xT4", "--", "sh", "-c",
		berth+" submit -D /tmp -o /dev/null -- sleep "+marker+" && "+berth+" queue -o name && exit 23")
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 23 {
		t.Errorf("ended %v, want the command's status 23\n%s", err, out.String())
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	// The last of them may be ending still.
	var ps []byte
	for deadline := time.Now().Add(10 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ps, _ = exec.Command("pgrep", "-f", "-a", tmp+"|sleep "+marker+"$").Output()
		if len(bytes.TrimSpace(ps)) == 0 {
			return
		}
	}
	t.Errorf("processes left behind: %s", ps)
}

func TestGossipIsShownBesideTheLedger(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "2x1xT4")
	c.eventually("gossip to tell of both nodes", func() bool {
		out := c.run("node", "list", "-o", "json")
		return strings.Count(out, `"gossip": "alive"`) == 2 && !strings.Contains(out, `"gossip_free_mib": -1`)
	})
}
