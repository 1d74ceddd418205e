//go:build gpu && linux && cgo

package nvmlproc

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/nvml"
	"github.com/berth-scheduler/berth/agent/gpu/owner"
)

// realNode reaches the driver of this machine; without one the test is
// skipped.
func realNode(t *testing.T) *Provider {
	t.Helper()
	p, err := nvml.New(nvml.Config{})
	if err != nil {
		t.Skipf("SKIPPED: no NVIDIA driver here, so the real one is NOT tested: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	prov, err := Open(t.Context(), Config{
		Command: []string{exe}, Env: []string{childEnv + "=libnvidia-ml.so.1", "LD_LIBRARY_PATH=" + os.Getenv("LD_LIBRARY_PATH")},
		Owners: owner.New(owner.Config{Parent: "/berth"}).Mark,
	})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := prov.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return prov
}

func TestRealInventory(t *testing.T) {
	p := realNode(t)
	cards, err := p.Inventory(t.Context())
	if err != nil || len(cards) == 0 {
		t.Fatalf("inventory: %+v, %v", cards, err)
	}
	for _, c := range cards {
		t.Logf("%+v", c)
		if !strings.HasPrefix(c.UUID, "GPU-") || c.Type == "" || c.MemMiB < 1024 || c.ReservedMiB < 0 || c.ReservedMiB > c.MemMiB/4 ||
			c.PCI == "" || c.ComputeMajor < 3 || c.Driver == "" || c.CUDA == "" {
			t.Errorf("not sane: %+v", c)
		}
	}
	health, err := p.Health(t.Context())
	if err != nil || len(health) != len(cards) {
		t.Errorf("health: %+v, %v", health, err)
	}
	t.Logf("health: %+v", health)
}

// TestRealTuning reads only: a card's limits are its site's.
func TestRealTuning(t *testing.T) {
	p := realNode(t)
	cards, err := p.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cards {
		got, err := p.Tuning(t.Context(), c.UUID)
		t.Logf("%s: %+v, %v", c.UUID, got, err)
		if err != nil || got.LimitMilliW > 0 && (got.LimitMilliW < got.MinMilliW || got.LimitMilliW > got.MaxMilliW) || len(got.ClocksMHz) == 1 {
			t.Errorf("not sane: %+v, %v", got, err)
		}
	}
}

func TestRealUsage(t *testing.T) {
	p := realNode(t)
	began := time.Now()
	const looks = 20
	for range looks {
		usage, err := p.Usage(t.Context())
		if err != nil || len(usage) == 0 {
			t.Fatalf("usage: %+v, %v", usage, err)
		}
		for _, u := range usage {
			var sum int64
			for _, pr := range u.Processes {
				sum += max(0, pr.MemMiB)
			}
			// Processes hold no more than is used, but for what each rounds.
			if slack := u.UsedMiB/100 + int64(len(u.Processes)) + 1; sum > u.UsedMiB+slack {
				t.Errorf("%s: processes hold %d MiB of %d used", u.UUID, sum, u.UsedMiB)
			}
			if u.UtilMilli > 1000 || u.MemActivityMilli > 1000 || u.UsedMiB < 0 {
				t.Errorf("not sane: %+v", u)
			}
		}
	}
	t.Logf("a look takes %v", time.Since(began)/looks)
}

// A process that allocates a known amount shows with it, and with what its
// context costs; what it computes is known or said to be unknown, also when it
// goes through MPS's server, for which drivers take no samples of clients.
func TestRealProcess(t *testing.T) { realProcess(t, nil) }

func TestRealProcessOfMPS(t *testing.T) {
	control, err := exec.LookPath("nvidia-cuda-mps-control")
	if err != nil {
		t.Skip("SKIPPED: nvidia-cuda-mps-control is not installed")
	}
	env := append(os.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+t.TempDir(), "CUDA_MPS_LOG_DIRECTORY="+t.TempDir())
	tell := func(input string, args ...string) error {
		cmd := exec.Command(control, args...)
		cmd.Env, cmd.Stdin = env, strings.NewReader(input)
		return cmd.Run()
	}
	if err := tell("", "-d"); err != nil {
		t.Skipf("SKIPPED: MPS does not start: %v", err)
	}
	t.Cleanup(func() { _ = tell("quit -t 1\n") })
	realProcess(t, env)
}

func realProcess(t *testing.T, env []string) {
	p := realNode(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: no python3 here to use the GPU")
	}
	const mib = 2048
	cmd := exec.CommandContext(t.Context(), python, "-c",
		`import ctypes,time
c=ctypes.CDLL("libcuda.so.1"); h=ctypes.c_void_p(); d=ctypes.c_int(); p=ctypes.c_uint64()
for r in (c.cuInit(0), c.cuDeviceGet(ctypes.byref(d),0), c.cuCtxCreate_v2(ctypes.byref(h),0,d), c.cuMemAlloc_v2(ctypes.byref(p),ctypes.c_size_t(2048<<20))):
    assert r==0, r
print("ready", flush=True); end=time.time()+120
while time.time()<end: c.cuMemsetD8_v2(p,ctypes.c_ubyte(1),ctypes.c_size_t(2048<<20)); c.cuCtxSynchronize()`)
	cmd.Env = env
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if n, err := out.Read(make([]byte, 16)); n == 0 {
		t.Skipf("SKIPPED: the program cannot use the GPU: %v", err)
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(250 * time.Millisecond) {
		usage, err := p.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range usage {
			i := slices.IndexFunc(u.Processes, func(pr gpu.Process) bool { return pr.PID == cmd.Process.Pid })
			if i < 0 {
				continue
			}
			pr := u.Processes[i]
			if busy := u.UtilMilli > 500 && pr.UtilMilli != 0; !busy && time.Now().Before(end.Add(-110*time.Second)) {
				continue // the driver's samples come late
			}
			t.Logf("%+v of %d MiB used, the card is busy to %d thousandths", pr, u.UsedMiB, u.UtilMilli)
			if pr.UtilMilli == 0 || u.UtilMilli < 500 {
				t.Errorf("it computes all the time, and is said not to: %+v of %+v", pr, u)
			}
			if pr.MemMiB < mib || pr.MemMiB > mib+2048 || !pr.Stray {
				t.Errorf("want a stray with %d MiB and a context: %+v", mib, pr)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("pid %d does not show; is this a pid namespace of its own? %+v", cmd.Process.Pid, usage)
		}
	}
}
