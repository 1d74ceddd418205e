package containerdrt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/containerdrt/daemon"
	"github.com/berth-scheduler/berth/agent/gpu/cdi"
)

// Two simulated cards: character devices with the driver's major number, which
// no driver serves here. Opening one that the rules let through answers ENXIO.
const (
	cardA = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
	cardB = "GPU-bbbbbbbb-0000-0000-0000-000000000002"
)

// simulated makes device nodes, a specification as the toolkit writes it, and a
// hook that notes its environment in the file it returns.
func simulated(b *bench) (in *cdi.Injector, hookEnv string) {
	b.Helper()
	dir, err := os.MkdirTemp("/tmp", "cards")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	dev := filepath.Join(dir, "dev")
	for _, d := range []string{dev, filepath.Join(dir, "cdi")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	for name, num := range map[string]uint64{
		"nvidia0": unix.Mkdev(195, 0), "nvidia1": unix.Mkdev(195, 1), "nvidiactl": unix.Mkdev(195, 255),
		"nvidia-modeset": unix.Mkdev(195, 254), "nvidia-uvm": unix.Mkdev(511, 0), "nvidia-uvm-tools": unix.Mkdev(511, 1),
	} {
		p := filepath.Join(dev, name)
		if err := unix.Mknod(p, unix.S_IFCHR|0o666, int(num)); err != nil {
			b.Fatal(err)
		}
		if err := os.Chmod(p, 0o666); err != nil {
			b.Fatal(err)
		}
	}
	hook := filepath.Join(dir, "nvidia-cdi-hook")
	hookEnv = filepath.Join(dir, "hook.env")
	script := fmt.Sprintf("#!/bin/sh\n/bin/busybox env >>%s\n/bin/busybox echo $1 >>%s\n", hookEnv, hookEnv)
	if err := os.WriteFile(hook, []byte(script), 0o755); err != nil {
		b.Fatal(err)
	}
	node := func(name string) string { return fmt.Sprintf("{path: /dev/%s, hostPath: %s/%s}", name, dev, name) }
	lib, err := filepath.EvalSymlinks("/lib/x86_64-linux-gnu/libc.so.6")
	if err != nil {
		b.Skip(err)
	}
	spec := fmt.Sprintf(`---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- {name: %s, containerEdits: {deviceNodes: [%s]}}
- {name: %s, containerEdits: {deviceNodes: [%s]}}
- {name: all, containerEdits: {deviceNodes: [%s, %s]}}
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  deviceNodes: [%s, %s, %s, %s]
  hooks:
  - {hookName: createContainer, path: %s, args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib64]}
  mounts:
  - {hostPath: %s, containerPath: /usr/lib64/libcuda.so.1, options: [ro, nosuid, nodev, rbind, rprivate]}
`, cardA, node("nvidia0"), cardB, node("nvidia1"), node("nvidia0"), node("nvidia1"),
		node("nvidiactl"), node("nvidia-uvm"), node("nvidia-uvm-tools"), node("nvidia-modeset"), hook, lib)
	if err := os.WriteFile(filepath.Join(dir, "cdi", "nvidia.yaml"), []byte(spec), 0o644); err != nil {
		b.Fatal(err)
	}
	in, err = cdi.New(cdi.Config{Dirs: []string{filepath.Join(dir, "cdi")}, DeviceDir: dev, DriverDir: dir, Hooks: []string{hook}})
	if err != nil {
		b.Fatal(err)
	}
	return in, hookEnv
}

const tryCards = `for d in nvidia0 nvidia1 nvidiactl nvidia-uvm nvidia-uvm-tools nvidia-modeset; do
  (exec 3</dev/$d) 2>&1 | /bin/busybox sed "s/.*: //;s/^/$d: /"
done
/bin/busybox env | /bin/busybox grep -E '^(CUDA|NVIDIA|LD)_' | /bin/busybox sort
echo end`

// TestDevices gives simulated cards to jobs.
func TestDevices(t *testing.T) {
	t.Parallel()
	require(t)
	b := newBench(t)
	in, hookEnv := simulated(b)
	b.rt.cfg.Devices = in
	image := b.load("berth.test/hostile:v1", hostile)
	const through, absent = "No such device or address", "no such file"
	cards := func(a, b string) []string {
		return []string{"nvidia0: " + a, "nvidia1: " + b, "nvidiactl: " + through, "nvidia-uvm: " + through, "nvidia-uvm-tools: " + through, "nvidia-modeset: " + absent}
	}
	for i, c := range []struct {
		name, image string
		grant       []string
		want        []string
	}{
		{"an image job sees its card", image, []string{cardA}, append(cards(through, absent), "NVIDIA_VISIBLE_DEVICES=void", "end")},
		{"an image job sees the other", image, []string{cardB}, append(cards(absent, through), "NVIDIA_VISIBLE_DEVICES=void", "end")},
		{"a host job sees its card", "", []string{cardB}, append(cards(absent, through), "end")},
		{"a host job sees both of its cards", "", []string{cardA, cardB}, append(cards(through, through), "end")},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := *b
			sub.TB = t
			l := b.job(700+i, c.image, "/bin/busybox", "sh", "-c", tryCards)
			var err error
			if l.CDIDevices, err = in.Grant(c.grant); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, sub.says(l)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("nobody's variables reach a hook", func(t *testing.T) {
		sub := *b
		sub.TB = t
		if err := os.Remove(hookEnv); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		l := b.job(720, image, "/bin/busybox", "true")
		l.CDIDevices = []string{cdi.Name(cardA)}
		l.Env = append(l.Env, "LD_AUDIT=/evil.so", "LD_DEBUG=all", "CUDA_VISIBLE_DEVICES="+cardA, "NVIDIA_VISIBLE_DEVICES=all")
		sub.start(l)
		sub.wait(l.ID)
		text, err := os.ReadFile(hookEnv)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSpace(string(text)), "\n")
		got = slices.DeleteFunc(got, func(s string) bool {
			return s == "SHLVL=1" || strings.HasPrefix(s, "PWD=") || strings.HasPrefix(s, "_=")
		})
		slices.Sort(got)
		want := append(slices.Clone(cdi.HookEnv()), "update-ldcache")
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a hook saw (-want +got):\n%s", diff)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		sub := *b
		sub.TB = t
		for n, name := range []string{"nvidia.com/gpu=GPU-gone", "evil.com/gpu=" + cardA, "nvidia.com/gpu=0", cdi.Name("all")} {
			l := b.job(730+n, image, "/bin/busybox", "true")
			l.CDIDevices = []string{name}
			if le := sub.refused(l); le.Reason != "CDI" || !le.Node || strings.Contains(le.Error(), "\n") {
				t.Errorf("%s: got %+v", name, le)
			}
		}
	})
	t.Run("self-test", func(t *testing.T) { testSelfTest(t, b, in) })
}

// lax is a runtime that gives every container both cards.
type lax struct{ *Runtime }

func (l lax) ProbeDevices(ctx context.Context, p cdi.Probe) (map[string]syscall.Errno, error) {
	p.Names = []string{cdi.Name(cardA), cdi.Name(cardB)}
	return l.Runtime.ProbeDevices(ctx, p)
}

func testSelfTest(t *testing.T, b *bench, in *cdi.Injector) {
	both := []cdi.Root{cdi.HostRoot, cdi.ImageRoot}
	for _, cards := range [][]string{{cardA, cardB}, {cardB, cardA}, {cardA}} {
		if err := in.SelfTest(t.Context(), b.rt, cards, both...); err != nil {
			t.Errorf("%v: %v", cards, err)
		}
	}
	for _, root := range both {
		err := in.SelfTest(t.Context(), lax{b.rt}, []string{cardA, cardB}, root)
		if err == nil || !strings.Contains(err.Error(), "another card /dev/nvidia1 can be opened") || !strings.Contains(err.Error(), "put into its way") {
			t.Errorf("%s with every card: got %v", root, err)
		}
	}
	if tasks, err := b.rt.List(t.Context()); err != nil {
		t.Error(err)
	} else {
		for _, task := range tasks {
			if task.ID.Job == probeJob {
				t.Errorf("left behind: %+v", task)
			}
		}
	}
}

// BenchmarkSelfTest is what the agent's start waits for.
func BenchmarkSelfTest(b *testing.B) {
	if err := daemon.Installed(); err != nil || os.Geteuid() != 0 {
		b.Skip("needs root and containerd")
	}
	bb := newBench(b)
	in, _ := simulated(bb)
	bb.rt.cfg.Devices = in
	for b.Loop() {
		if err := in.SelfTest(b.Context(), bb.rt, []string{cardA, cardB}, cdi.HostRoot, cdi.ImageRoot); err != nil {
			b.Fatal(err)
		}
	}
}
