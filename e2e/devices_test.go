package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/gpu/nvml/nvmltest"
)

// driverRoot is where a driver in a container keeps its files. Specifications
// may name device nodes there, so that the simulated ones need not be in /dev.
const driverRoot = "/run/nvidia/driver"

// simulateDriver makes two cards: device nodes that no driver serves, so that
// opening one that the rules let through answers ENXIO, the driver's library,
// and a directory for specifications.
func simulateDriver(t *testing.T) (env []string, specs string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("device nodes are made by root")
	}
	if _, err := os.Stat(driverRoot); err == nil {
		t.Skip(driverRoot + " is in use on this machine")
	}
	dev := filepath.Join(driverRoot, "dev")
	if err := os.MkdirAll(dev, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(os.RemoveAll(driverRoot), os.Remove(filepath.Dir(driverRoot))) })
	for name, minor := range map[string]uint32{"nvidia0": 0, "nvidia1": 1, "nvidiactl": 255} {
		p := filepath.Join(dev, name)
		if err := errors.Join(unix.Mknod(p, unix.S_IFCHR, int(unix.Mkdev(195, minor))), os.Chmod(p, 0o666)); err != nil {
			t.Skipf("device nodes cannot be made here: %v", err)
		}
	}
	lib := filepath.Dir(nvmltest.Build(t, nvmltest.Recent))
	nvmltest.WriteScript(t, filepath.Join(lib, "script"), "driver 580.65.06\n"+
		"card GPU-aaaaaaaa-0000-0000-0000-000000000001 16000000000 0 0 0 30000 00000000:18:00.0 NVIDIA A10\n"+
		"card GPU-bbbbbbbb-0000-0000-0000-000000000002 16000000000 0 0 0 30000 00000000:3B:00.0 NVIDIA A10\n")
	specs = t.TempDir()
	return []string{"LD_LIBRARY_PATH=" + lib, "BERTH_GPUS_CDI_DIRS=" + specs}, specs
}

func writeDeviceSpec(t *testing.T, dir string) {
	t.Helper()
	node := func(name string) string {
		return fmt.Sprintf("{path: /dev/%s, hostPath: %s/dev/%s}", name, driverRoot, name)
	}
	text := fmt.Sprintf("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n"+
		"- {name: GPU-aaaaaaaa-0000-0000-0000-000000000001, containerEdits: {deviceNodes: [%s]}}\n"+
		"- {name: GPU-bbbbbbbb-0000-0000-0000-000000000002, containerEdits: {deviceNodes: [%s]}}\n"+
		"containerEdits: {deviceNodes: [%s]}\n", node("nvidia0"), node("nvidia1"), node("nvidiactl"))
	if err := os.WriteFile(filepath.Join(dir, "nvidia.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// runDoctor looks at the node of an agent; this machine has no driver, which it
// must find too.
func runDoctor(t *testing.T, env []string, config string) string {
	t.Helper()
	cmd := exec.Command(berth, "doctor", "--agent-config", config, "--coordinator-config", filepath.Join(t.TempDir(), "none"))
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if _, real := os.Stat("/proc/driver/nvidia/version"); real != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("doctor on a node without a driver: %v\n%s", err, out)
	}
	return string(out)
}

// TestJobsSeeTheirOwnCards has an agent find two cards through the driver's
// library, prove that it can keep them apart, and give each of two jobs its own.
func TestJobsSeeTheirOwnCards(t *testing.T) {
	t.Parallel()
	needContainerd(t)
	env, specs := simulateDriver(t)
	writeDeviceSpec(t, specs)
	c := startClusterWith(t, env, "--runtime", "containerd", "--nodes", "nvml")
	log := filepath.Join(c.dir, "n1", "log")
	c.eventually("the self-test", func() bool {
		text, _ := os.ReadFile(log)
		return strings.Contains(string(text), "self-test passed")
	})
	findings := runDoctor(t, env, filepath.Join(c.dir, "n1", "agent.yaml"))
	for _, want := range []string{"2 of 2 devices can be given to jobs", "ahead, give or take", "gossip ports answer", "not accessible to others"} {
		if !strings.Contains(findings, want) {
			t.Errorf("doctor does not say %q:\n%s", want, findings)
		}
	}
	dir := openDir(t)
	const script = `for d in 0 1; do (exec 3</dev/nvidia$d) 2>&1 | sed 's/.*: //'; done; echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES; sleep 2`
	var ids []uint64
	for range 2 {
		ids = append(ids, c.submit("-D", dir, "--gpus", "1", "--exclusive", "--", "env", "NVIDIA_VISIBLE_DEVICES=", "sh", "-c", script))
	}
	seen := map[string]bool{}
	for _, id := range ids {
		c.await(id, "COMPLETED")
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("berth-%d.out", id)))
		if err != nil {
			t.Fatal(err)
		}
		seen[string(text)] = true
	}
	for _, want := range []string{
		"No such device or address\nNo such file\nGPU-aaaaaaaa-0000-0000-0000-000000000001\n",
		"No such file\nNo such device or address\nGPU-bbbbbbbb-0000-0000-0000-000000000002\n",
	} {
		if !seen[want] {
			t.Errorf("no job saw %q; they saw %v", want, seen)
		}
	}
	// Without a specification the cards leave the offer, and the job that met it
	// first is not its user's failure.
	late := c.submit("-D", dir, "--hold", "--gpus", "1", "--exclusive", "--", "true") // the agent may see it first
	if err := os.Remove(filepath.Join(specs, "nvidia.yaml")); err != nil {
		t.Fatal(err)
	}
	c.run("release", fmt.Sprint(late))
	if j := c.await(late, "NODE_FAIL", "PENDING"); j.State == "NODE_FAIL" && j.Reason != "NodeFault" {
		t.Errorf("without a specification: %s (%s)", j.State, j.Reason)
	}
	c.eventually("no GPU is offered", func() bool {
		var nodes []struct {
			GPUs []any `json:"gpus"`
		}
		err := json.Unmarshal([]byte(c.run("node", "list", "-o", "json")), &nodes)
		return err == nil && len(nodes) == 1 && len(nodes[0].GPUs) == 0
	})
}
