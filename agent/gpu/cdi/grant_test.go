package cdi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// node is a directory that stands for a machine with simulated cards.
type node struct {
	*testing.T
	dir string
}

const (
	uuidA = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
	uuidB = "GPU-bbbbbbbb-0000-0000-0000-000000000002"
)

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("device nodes are made by root")
	}
	n := &node{T: t, dir: t.TempDir()}
	for name, minor := range map[string]uint32{"nvidia0": 0, "nvidia1": 1, "nvidiactl": 255} {
		n.mknod(name, minor)
	}
	n.write("bin/nvidia-cdi-hook", "#!/bin/sh\n")
	if err := os.Chmod(n.path("bin/nvidia-cdi-hook"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.write("driver/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)\nGCC version:\n")
	n.gpu("0000:18:00.0", uuidA, 0)
	n.gpu("0000:3b:00.0", uuidB, 1)
	n.spec("etc/nvidia.yaml", uuidA, uuidB)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(name, text string) {
	n.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(n.path(name)), 0o755), os.WriteFile(n.path(name), []byte(text), 0o644)); err != nil {
		n.Fatal(err)
	}
}

func (n *node) remove(name string) {
	n.Helper()
	if err := os.RemoveAll(n.path(name)); err != nil {
		n.Fatal(err)
	}
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *node) mknod(name string, minor uint32) {
	n.Helper()
	if err := errors.Join(os.MkdirAll(n.path("dev"), 0o755), unix.Mknod(n.path("dev/"+name), unix.S_IFCHR|0o666, int(unix.Mkdev(195, minor)))); err != nil {
		n.Skipf("device nodes cannot be made here: %v", err)
	}
}

func (n *node) gpu(pci, uuid string, minor int) {
	n.Helper()
	n.write("driver/gpus/"+pci+"/information", fmt.Sprintf("Model: \t\t NVIDIA H100\nIRQ:   \t\t 82\nGPU UUID: \t %s\nBus Type: \t PCIe\nDevice Minor: \t %d\n", uuid, minor))
}

// spec writes a specification of cards, numbered in order.
func (n *node) spec(name string, uuids ...string) {
	n.Helper()
	var b strings.Builder
	b.WriteString("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n")
	for i, u := range uuids {
		fmt.Fprintf(&b, "- {name: %s, containerEdits: {deviceNodes: [{path: /dev/nvidia%d, hostPath: %s/nvidia%d}]}}\n", u, i, n.path("dev"), i)
	}
	fmt.Fprintf(&b, "containerEdits:\n  deviceNodes: [{path: /dev/nvidiactl, hostPath: %s/nvidiactl}]\n  hooks:\n  - {hookName: createContainer, path: %s, args: [nvidia-cdi-hook, enable-cuda-compat, --host-driver-version=580.65.06]}\n", n.path("dev"), n.path("bin/nvidia-cdi-hook"))
	n.write(name, b.String())
}

func (n *node) injector() *Injector {
	n.Helper()
	in, err := New(Config{Dirs: []string{n.path("etc"), n.path("run")}, DeviceDir: n.path("dev"), DriverDir: n.path("driver"), Hooks: []string{n.path("bin/nvidia-cdi-hook")}})
	if err != nil {
		n.Fatal(err)
	}
	return in
}

func TestGrant(t *testing.T) {
	n := newNode(t)
	got, err := n.injector().Grant([]string{uuidB, uuidA})
	if diff := cmp.Diff([]string{"nvidia.com/gpu=" + uuidB, "nvidia.com/gpu=" + uuidA}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got := n.injector().DriverVersion(); got != "580.65.06" {
		t.Errorf("driver %q", got)
	}
	edits, err := n.injector().Edits(got, HostRoot)
	if err != nil {
		t.Fatal(err)
	}
	if len(edits.Hooks) > 0 || len(edits.Mounts) > 0 || len(edits.Env) > 0 || len(edits.DeviceNodes) != 3 {
		t.Errorf("a host job gets %+v, want its device nodes alone", edits.ContainerEdits)
	}
}

func TestGrantFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*node)
		fault Fault
		want  string // also in the text
	}{
		{"no specification", func(n *node) { n.remove("etc") }, Missing, "run: nvidia-ctk cdi generate"},
		{"another vendor's only", func(n *node) { n.remove("etc"); n.write("etc/amd.yaml", "cdiVersion: 0.5.0\nkind: amd.com/gpu\n") }, Missing, "amd.yaml is of another kind"},
		{"another vendor's beside it", func(n *node) { n.write("etc/amd.yaml", "cdiVersion: 0.5.0\nkind: amd.com/gpu\n") }, "", ""},
		{"neither YAML nor JSON by name", func(n *node) { n.write("etc/nvidia.yaml.bak", "{") }, "", ""},
		{"lacks the card", func(n *node) { n.spec("etc/nvidia.yaml", uuidB) }, Lacks, "has no device " + uuidA + ", only " + uuidB},
		{"by index only", func(n *node) { n.spec("etc/nvidia.yaml", "0", "1") }, Lacks, "named by index; run: nvidia-ctk cdi generate --device-name-strategy=uuid"},
		{"older driver", func(n *node) {
			n.write("driver/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n")
		}, Stale, "was made for driver 580.65.06, and 535.129.03 runs"},
		{"driver does not say", func(n *node) { n.remove("driver") }, "", ""},
		{"numbered anew", func(n *node) { n.gpu("0000:18:00.0", uuidA, 1); n.gpu("0000:3b:00.0", uuidB, 0) }, Stale, "now it is /dev/nvidia1"},
		{"hook is gone", func(n *node) { n.remove("bin") }, Stale, "install nvidia-container-toolkit-base"},
		{"hook is another user's", func(n *node) { n.must(os.Chown(n.path("bin/nvidia-cdi-hook"), 1000, 1000)) }, Refused, "bin/nvidia-cdi-hook can be changed by others than root"},
		{"hook where everybody writes", func(n *node) { n.must(os.Chmod(n.path("bin"), 0o777)) }, Refused, "/bin can be changed by others than root"},
		{"hook is a link of another user's", func(n *node) {
			n.must(os.Rename(n.path("bin/nvidia-cdi-hook"), n.path("bin/x")))
			n.must(os.Mkdir(n.path("theirs"), 0o755))
			n.must(os.Chown(n.path("theirs"), 1000, 1000))
			n.must(os.Rename(n.path("bin/x"), n.path("theirs/x")))
			n.must(os.Symlink(n.path("theirs/x"), n.path("bin/nvidia-cdi-hook")))
		}, Refused, "/theirs can be changed by others than root"},
		{"node is gone", func(n *node) { n.remove("dev/nvidia0") }, Gone, "nvidia-modprobe"},
		{"shared node is gone", func(n *node) { n.remove("dev/nvidiactl") }, Gone, "nvidiactl is not there"},
		{"node is a plain file", func(n *node) { n.remove("dev/nvidia0"); n.write("dev/nvidia0", "") }, Gone, "not a character device"},
		{"node is a link", func(n *node) {
			n.remove("dev/nvidia0")
			if err := os.Symlink("/dev/zero", n.path("dev/nvidia0")); err != nil {
				n.Fatal(err)
			}
		}, Gone, "not a character device"},
		{"cannot be read as YAML", func(n *node) { n.write("etc/nvidia.yaml", "{") }, Refused, "nvidia.yaml: failed to unmarshal"},
		{"others may write it", func(n *node) {
			if err := os.Chmod(n.path("etc/nvidia.yaml"), 0o666); err != nil {
				n.Fatal(err)
			}
		}, Refused, "closed to other writers"},
		{"another user's", func(n *node) {
			if err := os.Chown(n.path("etc/nvidia.yaml"), 1000, 1000); err != nil {
				n.Fatal(err)
			}
		}, Refused, "belongs to uid 1000"},
		{"is a directory", func(n *node) { n.remove("etc"); n.write("etc/nvidia.yaml/x", "") }, Refused, "not a plain file"},
		{"is a pipe", func(n *node) {
			n.remove("etc/nvidia.yaml")
			if err := unix.Mkfifo(n.path("etc/nvidia.yaml"), 0o644); err != nil {
				n.Fatal(err)
			}
		}, Refused, "not a plain file"},
		{"in two files of a directory", func(n *node) { n.remove("etc"); n.spec("etc/b.yaml", uuidB); n.spec("etc/a.yaml", uuidB) }, Refused, "remove one of the two files"},
		{"the later directory wins", func(n *node) { n.spec("etc/nvidia.yaml", "GPU-old"); n.spec("run/nvidia.yaml", uuidA) }, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			c.spoil(n)
			_, err := n.injector().Grant([]string{uuidA})
			if got := faultOf(err); got != c.fault || (err == nil) != (c.fault == "") {
				t.Fatalf("got %v, want fault %q", err, c.fault)
			}
			if err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("got %q, want one line with %q", err, c.want)
			}
		})
	}
}

// TestSoundSocket: the daemons' places may be theirs, but lead nowhere else.
func TestSoundSocket(t *testing.T) {
	n := newNode(t)
	n.write("run/own/socket", "")
	n.must(os.Chown(n.path("run/own"), 1000, 1000))
	if err := soundSocket(n.path("run/own/socket")); err != nil {
		t.Error(err)
	}
	n.must(os.Symlink("/", n.path("run/own/root")))
	if err := soundSocket(n.path("run/own/root")); err == nil || !strings.Contains(err.Error(), "is a link to /") {
		t.Errorf("a link: %v", err)
	}
	n.must(os.Chmod(n.path("run/own"), 0o777))
	if err := soundSocket(n.path("run/own/socket")); err == nil || !strings.Contains(err.Error(), "written to by everybody") {
		t.Errorf("everybody's: %v", err)
	}
}

// TestGivenOfMIG: an instance brings what it is opened with, and nothing of
// its neighbour; displays come only where the site says so.
func TestGivenOfMIG(t *testing.T) {
	for _, c := range []struct {
		name, device string
		extra        []Class
		want         []string
	}{
		{"an instance", "MIG-0c9e1a77-52d4-5b1e-8f3a-6d7b2a90e511", nil, []string{"nvidia-uvm", "nvidia-uvm-tools", "nvidiactl", "nvidia1", "nvidia-caps/nvidia-cap21", "nvidia-caps/nvidia-cap22"}},
		{"a card", "GPU-4a2b9f1c-0d3e-4c57-9a61-5b8e7d2c1f00", nil, []string{"nvidia-uvm", "nvidia-uvm-tools", "nvidiactl", "nvidia0"}},
		{"a card with displays", "GPU-4a2b9f1c-0d3e-4c57-9a61-5b8e7d2c1f00", []Class{Graphics}, []string{"nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl", "nvidia0", "dri/card1", "dri/renderD128"}},
	} {
		in, err := New(Config{Extra: c.extra})
		if err != nil {
			t.Fatal(err)
		}
		spec, err := in.Parse([]byte(recorded(t, "h100.yaml")))
		if err != nil {
			t.Fatal(err)
		}
		for i := range spec.Devices {
			if spec.Devices[i].Name != c.device {
				continue
			}
			var got []string
			for _, n := range in.granted(&found{spec: spec, dev: &spec.Devices[i]}) {
				got = append(got, strings.TrimPrefix(n.Path, "/dev/"))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.name, diff)
			}
		}
	}
}

// TestNodesOfMIG: two instances share a card node, and each has its own of what
// opens it; the self-test tries the neighbour's.
func TestNodesOfMIG(t *testing.T) {
	n := newNode(t)
	n.remove("etc")
	for _, c := range []string{"3", "4"} {
		n.must(os.MkdirAll(n.path("dev/nvidia-caps"), 0o755))
		n.must(unix.Mknod(n.path("dev/nvidia-caps/nvidia-cap"+c), unix.S_IFCHR|0o666, int(unix.Mkdev(236, 3))))
	}
	node := func(name string) string {
		return fmt.Sprintf("{path: /dev/%s, hostPath: %s/%s}", name, n.path("dev"), name)
	}
	n.write("etc/nvidia.yaml", fmt.Sprintf("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n"+
		"- {name: MIG-a, containerEdits: {deviceNodes: [%s, %s]}}\n- {name: MIG-b, containerEdits: {deviceNodes: [%s, %s]}}\n",
		node("nvidia0"), node("nvidia-caps/nvidia-cap3"), node("nvidia0"), node("nvidia-caps/nvidia-cap4")))
	p := &scripted{denied: syscall.EPERM, absent: syscall.ENOENT}
	_ = n.injector().SelfTest(t.Context(), p, []string{"MIG-a", "MIG-b"}, HostRoot) // the script knows no instances
	if len(p.asked) != 1 {
		t.Fatalf("asked %+v", p.asked)
	}
	if diff := cmp.Diff([]string{"/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-caps/nvidia-cap4", "/dev/nvidia0"}, p.asked[0].Open); diff != "" {
		t.Errorf("opens (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{n.path("dev/nvidia-caps/nvidia-cap4")}, p.asked[0].Others); diff != "" {
		t.Errorf("lays in its way (-want +got):\n%s", diff)
	}
}

// scripted answers probes: cards that are not granted are as absent says.
type scripted struct {
	denied, absent, own syscall.Errno
	fails               error
	asked               []Probe
}

func (s *scripted) ProbeDevices(_ context.Context, p Probe) (map[string]syscall.Errno, error) {
	s.asked = append(s.asked, p)
	out := map[string]syscall.Errno{}
	for _, path := range p.Open {
		out[path] = s.absent
	}
	for _, name := range p.Names {
		if name == Name(uuidA) {
			out["/dev/nvidia0"] = s.own
		}
	}
	for _, o := range p.Others {
		out[o] = s.denied
	}
	return out, s.fails
}

func TestSelfTestVerdict(t *testing.T) {
	n := newNode(t)
	for _, c := range []struct {
		name  string
		p     scripted
		cards []string
		want  string
	}{
		{"sound", scripted{denied: syscall.EPERM, absent: syscall.ENOENT}, []string{uuidA, uuidB}, ""},
		{"sound, no driver behind it", scripted{denied: syscall.EPERM, absent: syscall.ENOENT, own: syscall.ENXIO}, []string{uuidA, uuidB}, ""},
		{"sound, one card", scripted{denied: syscall.EPERM, absent: syscall.ENOENT}, []string{uuidA}, ""},
		{"its own is denied", scripted{denied: syscall.EPERM, absent: syscall.ENOENT, own: syscall.EPERM}, []string{uuidA, uuidB}, "its own card /dev/nvidia0 cannot be opened (operation not permitted)"},
		{"its own is absent", scripted{denied: syscall.EPERM, absent: syscall.ENOENT, own: syscall.ENOENT}, []string{uuidA}, "cannot be opened (no such file"},
		{"the other is there", scripted{denied: syscall.EPERM}, []string{uuidA, uuidB}, "another card /dev/nvidia1 can be opened"},
		{"no rules", scripted{absent: syscall.ENOENT}, []string{uuidA, uuidB}, "put into its way"},
		{"no rules, one card", scripted{absent: syscall.ENOENT}, []string{uuidA}, "with 0 of 1 cards"},
		{"cannot run", scripted{fails: errors.New("no runc")}, []string{uuidA}, "no runc"},
	} {
		err := n.injector().SelfTest(t.Context(), &c.p, c.cards, HostRoot, ImageRoot)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		for _, p := range c.p.asked {
			if slices.Contains(p.Others, n.path("dev/nvidia0")) && slices.Contains(p.Names, Name(uuidA)) {
				t.Errorf("%s: its own card is put into its way: %+v", c.name, p)
			}
		}
	}
}

func TestGate(t *testing.T) {
	n := newNode(t)
	tests, fail := 0, error(nil)
	g := NewGate(n.injector(), time.Hour, func(context.Context) error { tests++; return fail })
	grant := func(wantTests int, want string) {
		t.Helper()
		_, err := g.Grant([]string{uuidA})
		if tests != wantTests || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("after %d tests: %v; want %d and %q", tests, err, wantTests, want)
		}
	}
	grant(1, "")
	grant(1, "") // once is enough
	n.write("driver/version", "")
	fail = errors.New("a job sees\nevery card")
	grant(2, "every card") // another driver
	grant(2, "every card")
	g.again = 0
	fail = nil
	grant(3, "")
	if _, err := g.Grant(nil); err != nil || tests != 3 {
		t.Errorf("no cards: %v", err)
	}
	n.remove("etc")
	grant(3, "no specification")
	if cards, err := n.injector().Cards(); err == nil {
		t.Errorf("cards of nothing: %v", cards)
	}
	n.spec("etc/nvidia.yaml", uuidB, uuidA)
	if cards, err := n.injector().Cards(); err != nil || !slices.Equal(cards, slices.Sorted(maps.Keys(map[string]int{uuidA: 0, uuidB: 1}))) {
		t.Errorf("cards %v, %v", cards, err)
	}
}
