//go:build linux && cgo

package nvml_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/nvml"
	"github.com/berth-scheduler/berth/agent/gpu/nvml/nvmltest"
)

const (
	cardA = "card GPU-aaaa 25769803776 322961408 7516192768 55 201500 00000000:3B:00.0 NVIDIA GeForce RTX 3090\n"
	cardB = "card GPU-bbbb 85899345920 910163968 0 0 60000 00000000:AF:00.0 NVIDIA A100-SXM4-80GB\n"
)

func TestMain(m *testing.M) { os.Exit(nvmltest.Main(m)) }

// fake is a driver whose script the test writes. A process binds NVML's
// symbols once, so each test that needs its own library runs in a child.
type fake struct {
	t      *testing.T
	script string
	p      *nvml.Provider
}

func newFake(t *testing.T, d nvmltest.Driver, script string) *fake {
	t.Helper()
	lib := nvmltest.Build(t, d)
	f := &fake{t: t, script: filepath.Join(t.TempDir(), "script")}
	t.Setenv(nvmltest.ScriptEnv, f.script)
	nvmltest.WriteScript(t, f.script, script)
	sys := t.TempDir()
	dev := filepath.Join(sys, "bus/pci/devices/0000:3b:00.0")
	if err := os.MkdirAll(dev, 0o755); err != nil {
		t.Fatalf("sysfs: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dev, "numa_node"), []byte("1\n"), 0o600); err != nil {
		t.Fatalf("sysfs: %v", err)
	}
	p, err := nvml.New(nvml.Config{LibraryPath: lib, SysFS: sys})
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	t.Cleanup(func() {
		for range 2 { // closing twice is fine
			if err := p.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if _, err := p.Inventory(context.Background()); err == nil {
			t.Error("a closed provider answers")
		}
	})
	f.p = p
	return f
}

// inChild runs the calling test again in a process of its own, and reports
// whether this is the parent, which then has nothing left to do.
func inChild(t *testing.T) bool {
	t.Helper()
	const mark = "NVML_TEST_CHILD"
	if os.Getenv(mark) == t.Name() {
		return false
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("child: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Fatalf("child did not run the test:\n%s", out)
	}
	return true
}

func (f *fake) inventory() []gpu.Card {
	f.t.Helper()
	cards, err := f.p.Inventory(f.t.Context())
	if err != nil {
		f.t.Fatalf("inventory: %v", err)
	}
	return cards
}

func (f *fake) usage() []gpu.Usage {
	f.t.Helper()
	u, err := f.p.Usage(f.t.Context())
	if err != nil {
		f.t.Fatalf("usage: %v", err)
	}
	return u
}

func TestInventory(t *testing.T) {
	if inChild(t) {
		return
	}
	f := newFake(t, nvmltest.Recent, "driver 550.54.15\n"+cardA+cardB)
	want := []gpu.Card{
		{
			UUID: "GPU-aaaa", Type: "RTX-3090", Name: "NVIDIA GeForce RTX 3090", Index: 0, MemMiB: 24576, ReservedMiB: 308,
			PCI: "00000000:3B:00.0", NUMA: 1, ComputeMajor: 8, ComputeMinor: 6, PowerLimitW: 350, Driver: "550.54.15", MIG: gpu.ModeOff,
		},
		{
			UUID: "GPU-bbbb", Type: "A100-SXM4-80GB", Name: "NVIDIA A100-SXM4-80GB", Index: 1, MemMiB: 81920, ReservedMiB: 868,
			PCI: "00000000:AF:00.0", NUMA: gpu.Unknown, ComputeMajor: 8, ComputeMinor: 6, PowerLimitW: 350, Driver: "550.54.15", MIG: gpu.ModeOff,
		},
	}
	if d := cmp.Diff(want, f.inventory()); d != "" {
		t.Errorf("inventory (-want +got):\n%s", d)
	}
	// After a reboot the cards may be numbered another way: only Index moves.
	nvmltest.WriteScript(t, f.script, "driver 550.54.15\n"+cardB+cardA)
	want[0], want[1] = want[1], want[0]
	want[0].Index, want[1].Index = 0, 1
	if d := cmp.Diff(want, f.inventory()); d != "" {
		t.Errorf("inventory after a permutation (-want +got):\n%s", d)
	}
	nvmltest.WriteScript(t, f.script, "")
	if got := f.inventory(); len(got) != 0 {
		t.Errorf("inventory of a driver without cards: %+v", got)
	}
}

func TestUsage(t *testing.T) {
	if inChild(t) {
		return
	}
	script := cardA + cardB +
		"proc 0 300 2147483648\nproc 0 100 4294967296\nproc 1 100 1048576\n" +
		"mps 0 300 2147483648\nmps 0 200 1073741824\n" +
		"sample 0 100 1000 40\nsample 0 100 2000 20\nsample 0 300 2000 25\nsample 0 300 0 99\n"
	f := newFake(t, nvmltest.Recent, script)
	want := []gpu.Usage{
		{UUID: "GPU-aaaa", UsedMiB: 7168, UtilMilli: 550, PowerW: 201, TemperatureC: 40, MemActivityMilli: 270, EnergyMJ: gpu.Unknown, Processes: []gpu.Process{
			{PID: 100, Kinds: gpu.Compute, MemMiB: 4096, UtilMilli: 300},
			{PID: 200, Kinds: gpu.MPSClient, MemMiB: 1024, UtilMilli: gpu.Unknown}, // its server's samples have it
			{PID: 300, Kinds: gpu.Compute | gpu.MPSClient, MemMiB: 2048, UtilMilli: 250},
		}},
		{UUID: "GPU-bbbb", PowerW: 60, TemperatureC: 40, MemActivityMilli: 0, EnergyMJ: gpu.Unknown, Processes: []gpu.Process{{PID: 100, Kinds: gpu.Compute, MemMiB: 1}}},
	}
	if d := cmp.Diff(want, f.usage()); d != "" {
		t.Errorf("usage (-want +got):\n%s", d)
	}
	// Only what came since counts the next time.
	nvmltest.WriteScript(t, f.script, script+"sample 0 100 3000 90\n")
	want[0].Processes[0].UtilMilli, want[0].Processes[2].UtilMilli = 900, gpu.Unknown
	if d := cmp.Diff(want, f.usage()); d != "" {
		t.Errorf("usage with one new sample (-want +got):\n%s", d)
	}
}

func TestUnknownMemoryOfOneProcessIsTheRest(t *testing.T) {
	if inChild(t) {
		return
	}
	f := newFake(t, nvmltest.Recent, cardA+"proc 0 1 4294967296\nproc 0 2 -1\n")
	want := []gpu.Process{{PID: 1, Kinds: gpu.Compute, MemMiB: 4096}, {PID: 2, Kinds: gpu.Compute, MemMiB: 3072}}
	if d := cmp.Diff(want, f.usage()[0].Processes); d != "" {
		t.Errorf("one unknown (-want +got):\n%s", d)
	}
	nvmltest.WriteScript(t, f.script, cardA+"proc 0 1 -1\nproc 0 2 -1\n")
	want = []gpu.Process{{PID: 1, Kinds: gpu.Compute, MemMiB: gpu.Unknown}, {PID: 2, Kinds: gpu.Compute, MemMiB: gpu.Unknown}}
	if d := cmp.Diff(want, f.usage()[0].Processes); d != "" {
		t.Errorf("two unknown (-want +got):\n%s", d)
	}
}

func TestCardsThatFail(t *testing.T) {
	if inChild(t) {
		return
	}
	f := newFake(t, nvmltest.Recent, cardA+cardB)
	for _, tc := range []struct {
		name, fail string
		lost       bool
		msg        string
	}{
		{"lost at its handle", "fail 0 nvmlDeviceGetHandleByIndex_v2 15\n", true, "GPU 0: nvmlDeviceGetHandleByIndex: GPU is lost"},
		{"lost later", "fail 0 nvmlDeviceGetMemoryInfo_v2 15\n", true, "GPU 0: nvmlDeviceGetMemoryInfo_v2"},
		{"unknown error", "fail 0 nvmlDeviceGetUUID 999\n", false, "unknown error (code 999)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nvmltest.WriteScript(t, f.script, cardA+cardB+tc.fail)
			cards, err := f.p.Inventory(t.Context())
			if len(cards) != 1 || cards[0].UUID != "GPU-bbbb" {
				t.Errorf("the healthy card is missing: %+v", cards)
			}
			if err == nil || errors.Is(err, gpu.ErrLost) != tc.lost || !strings.Contains(err.Error(), tc.msg) {
				t.Errorf("got error %v, want %q", err, tc.msg)
			}
			usage, err := f.p.Usage(t.Context())
			if len(usage) != 1 || err == nil {
				t.Errorf("usage: %+v, %v; want the healthy card and an error", usage, err)
			}
			if _, err := f.p.Admit(t.Context(), gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: "GPU-bbbb", MemMiB: 1}}}); err != nil {
				t.Errorf("a job for the healthy card is refused: %v", err)
			}
			if _, err := f.p.Admit(t.Context(), gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: "GPU-aaaa", MemMiB: 1}}}); !errors.Is(err, gpu.ErrUnknownCard) {
				t.Errorf("a job for the failed card: %v", err)
			}
		})
	}
	t.Run("not supported is no failure", func(t *testing.T) {
		nvmltest.WriteScript(t, f.script, cardB+
			"fail 0 nvmlDeviceGetUtilizationRates 3\nfail 0 nvmlDeviceGetPowerUsage 3\nfail 0 nvmlDeviceGetTemperature 3\n"+
			"fail 0 nvmlDeviceGetProcessUtilization 3\nfail 0 nvmlDeviceGetMPSComputeRunningProcesses_v3 3\n"+
			"proc 0 5 1048576\n")
		want := []gpu.Usage{{
			UUID: "GPU-bbbb", UtilMilli: gpu.Unknown, PowerW: gpu.Unknown, MemActivityMilli: gpu.Unknown, EnergyMJ: gpu.Unknown,
			Processes: []gpu.Process{{PID: 5, Kinds: gpu.Compute, MemMiB: 1, UtilMilli: gpu.Unknown}},
		}}
		if d := cmp.Diff(want, f.usage()); d != "" {
			t.Errorf("usage (-want +got):\n%s", d)
		}
	})
	t.Run("context ended", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.p.Inventory(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
}

// A driver that lacks newer calls must not end the process, as calling a
// missing symbol would.
func TestOldDriver(t *testing.T) {
	if inChild(t) {
		return
	}
	f := newFake(t, nvmltest.Old, "driver 418.1\n"+cardA+"proc 0 7 4294967296\nproc 0 8 -1\n")
	wantCards := []gpu.Card{{
		UUID: "GPU-aaaa", Type: "RTX-3090", Name: "NVIDIA GeForce RTX 3090", MemMiB: 24576, NUMA: gpu.Unknown, Driver: "418.1",
	}}
	if d := cmp.Diff(wantCards, f.inventory()); d != "" {
		t.Errorf("inventory (-want +got):\n%s", d)
	}
	want := []gpu.Usage{{
		UUID: "GPU-aaaa", UsedMiB: 7476, WithReserve: true, UtilMilli: 550, PowerW: gpu.Unknown, MemActivityMilli: 270, EnergyMJ: gpu.Unknown,
		Processes: []gpu.Process{{PID: 7, Kinds: gpu.Compute, MemMiB: 4096, UtilMilli: gpu.Unknown}, {PID: 8, Kinds: gpu.Compute, MemMiB: gpu.Unknown, UtilMilli: gpu.Unknown}},
	}}
	if d := cmp.Diff(want, f.usage()); d != "" {
		t.Errorf("usage (-want +got):\n%s", d)
	}
}

func TestNewWithoutADriver(t *testing.T) {
	t.Run("no library", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
		_, err := nvml.New(nvml.Config{LibraryPath: path})
		want := "no NVIDIA driver: " + path + " not found; install the driver or configure gpus: none"
		if !errors.Is(err, gpu.ErrNoDriver) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
	t.Run("init fails", func(t *testing.T) {
		if inChild(t) {
			return
		}
		lib := nvmltest.Build(t, nvmltest.Recent)
		script := filepath.Join(t.TempDir(), "script")
		t.Setenv(nvmltest.ScriptEnv, script)
		for code, msg := range map[string]string{"9": "kernel module is not loaded", "18": "reboot after an update", "999": "code 999"} {
			nvmltest.WriteScript(t, script, "init "+code+"\n")
			if _, err := nvml.New(nvml.Config{LibraryPath: lib}); !errors.Is(err, gpu.ErrNoDriver) || !strings.Contains(err.Error(), msg) {
				t.Errorf("init code %s: got %v, want %q", code, err, msg)
			}
		}
	})
}
