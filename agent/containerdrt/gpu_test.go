//go:build gpu

package containerdrt

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu/cdi"
)

// realDevices reads a specification that the installed toolkit writes, or skips.
func realDevices(t *testing.T) (*cdi.Injector, []string) {
	t.Helper()
	if _, err := os.Stat("/proc/driver/nvidia/version"); err != nil {
		t.Skip("no NVIDIA driver here")
	}
	dir := t.TempDir()
	if err := exec.Command("nvidia-ctk", "cdi", "generate", "--device-name-strategy=uuid", "--output="+filepath.Join(dir, "nvidia.yaml")).Run(); err != nil {
		t.Skipf("nvidia-ctk: %v", err)
	}
	in, err := cdi.New(cdi.Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	cards, err := in.Cards()
	if err != nil {
		t.Fatal(err)
	}
	return in, cards
}

// TestRealSelfTest is the agent's self-test on real cards, with both roots.
func TestRealSelfTest(t *testing.T) {
	in, cards := realDevices(t)
	require(t)
	b := newBench(t)
	b.rt.cfg.Devices = in
	if err := in.SelfTest(t.Context(), b.rt, cards, cdi.HostRoot, cdi.ImageRoot); err != nil {
		t.Error(err)
	}
}

// TestRealCardSurvivesDaemonReload: a job goes on seeing its one card while
// systemd reads its units again, ten times.
func TestRealCardSurvivesDaemonReload(t *testing.T) {
	in, cards := realDevices(t)
	require(t)
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("systemd does not run here")
	}
	b := newBench(t)
	b.rt.cfg.Devices = in
	l := b.job(900, "", "/bin/sh", "-c", "for i in $(seq 60); do nvidia-smi -L || exit 9; sleep 0.5; done")
	l.Env = append(l.Env, "PATH=/usr/bin:/bin")
	var err error
	if l.CDIDevices, err = in.Grant(cards[:1]); err != nil {
		t.Fatal(err)
	}
	b.start(l)
	b.lines(l, 1)
	for range 10 {
		if out, err := exec.Command("systemctl", "daemon-reload").CombinedOutput(); err != nil {
			t.Fatalf("systemctl: %v\n%s", err, out)
		}
		time.Sleep(time.Second) // it looks at its card about twice in this time
	}
	got := b.lines(l, 20)
	for _, line := range got {
		if !strings.Contains(line, cards[0]) {
			t.Fatalf("the job saw %q, want its card %s alone", line, cards[0])
		}
	}
}
