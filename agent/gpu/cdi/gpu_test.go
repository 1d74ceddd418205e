//go:build gpu

package cdi

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// realCards returns the UUIDs of this machine's cards as the driver's own tool
// has them, or skips.
func realCards(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat("/proc/driver/nvidia/version"); err != nil {
		t.Skip("no NVIDIA driver here")
	}
	out, err := exec.Command("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader").Output()
	if err != nil {
		t.Skipf("nvidia-smi: %v", err)
	}
	return strings.Fields(string(out))
}

// TestRealSpec reads what the installed toolkit writes for the cards that are
// here: the allow-list must take all of it, and each card must be given.
func TestRealSpec(t *testing.T) {
	cards := realCards(t)
	dir := t.TempDir()
	if _, err := exec.LookPath("nvidia-ctk"); err != nil {
		t.Skip("the toolkit is not installed")
	}
	if out, err := exec.Command("nvidia-ctk", "cdi", "generate", "--device-name-strategy=uuid", "--output="+dir+"/nvidia.yaml").CombinedOutput(); err != nil {
		t.Fatalf("nvidia-ctk: %v\n%s", err, out)
	}
	in, err := New(Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	if in.DriverVersion() == "" {
		t.Error("the driver's version was not found")
	}
	if len(in.minors()) == 0 {
		t.Error("the driver does not say which card is which node: a spec numbered otherwise would not be noticed")
	}
	names, err := in.Grant(cards)
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range []Root{HostRoot, ImageRoot} {
		edits, err := in.Edits(names[:1], root)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d nodes, %d mounts, %d hooks", root, len(edits.DeviceNodes), len(edits.Mounts), len(edits.Hooks))
		if root == ImageRoot && len(edits.Mounts) == 0 {
			t.Error("an image job gets none of the driver's libraries")
		}
	}
	f, err := in.load()
	if err != nil {
		t.Fatal(err)
	}
	if got := specVersion(f.devices[cards[0]].spec); got != in.DriverVersion() {
		t.Errorf("the specification is read as of driver %q, and %q runs", got, in.DriverVersion())
	}
}
