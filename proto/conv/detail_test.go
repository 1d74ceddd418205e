package conv

import (
	"strings"
	"testing"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func TestSellableWithoutStrays(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                            string
		mem, reserved, stray, head, res int64
	}{
		{"none", 1000, 100, 0, 50, 850},
		{"some", 1000, 100, 300, 50, 550},
		{"more than there is", 1000, 100, 5000, 50, 0},
		{"an absurd amount", 1000, 100, 1<<63 - 1, 50, 0},
		{"less than nothing", 1000, 100, -300, 50, 850},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := sellable(&nodev1.GPU{MemMib: tc.mem, ReservedMib: tc.reserved, StrayMib: tc.stray}, tc.head); got != tc.res {
				t.Errorf("got %d, want %d", got, tc.res)
			}
		})
	}
}

// What an agent tells of a card is for people, and bounded.
func TestDetailIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	g := &nodev1.GPU{StrayMib: -5, Pci: long, Numa: -1, Detail: &apiv1.GPUDetail{Name: long, Driver: "580.1", Mig: "a\xff" + long}}
	for range 1000 {
		g.Detail.Instances = append(g.Detail.Instances, &apiv1.GPUInstance{Uuid: long})
		g.Detail.Strays = append(g.Detail.Strays, &apiv1.StrayProcess{Pid: 1, Command: long})
	}
	d := DetailFromHello(g)
	if len(d.Name) > maxDetailText || len(d.Pci) > maxDetailText || len(d.Mig) > maxDetailText || d.Driver != "580.1" || d.StrayMib != 0 || d.Numa != -1 ||
		len(d.Instances) != maxInstances || len(d.Strays) != maxStrays || len(d.Strays[0].Command) > maxDetailText || len(d.Instances[0].Uuid) > maxDetailText {
		t.Errorf("kept %d bytes: %.300s", len(d.String()), d)
	}
	if DetailFromHello(&nodev1.GPU{}) != nil {
		t.Error("a detail where there was none")
	}
}

// TestHelloIsBounded: what a node says of itself is in the log of the
// coordinators for good, so that none may say much.
func TestHelloIsBounded(t *testing.T) {
	t.Parallel()
	hello := func(change func(*nodev1.Hello)) *nodev1.Hello {
		h := &nodev1.Hello{
			Protocol: 1, Node: "n1", BootId: "b", CpuMilli: 1, MemMib: 1, Runtimes: []string{"process"},
			Gpus: []*nodev1.GPU{{Uuid: "GPU-1", Type: "t4", MemMib: 1000, Pci: "00000000:3B:00.0", CapMode: "watch"}},
		}
		change(h)
		return h
	}
	if _, err := NodeFromHello(hello(func(*nodev1.Hello) {}), 0, 1); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 1<<20)
	for name, change := range map[string]func(*nodev1.Hello){
		"pci":      func(h *nodev1.Hello) { h.Gpus[0].Pci = long },
		"cap mode": func(h *nodev1.Hello) { h.Gpus[0].CapMode = long },
		"driver":   func(h *nodev1.Hello) { h.Driver = long },
		"runtime":  func(h *nodev1.Hello) { h.Runtimes[0] = long },
	} {
		if _, err := NodeFromHello(hello(change), 0, 1); err == nil {
			t.Errorf("a %s of %d bytes is taken", name, len(long))
		} else if len(err.Error()) > 1000 {
			t.Errorf("%s: the refusal has %d bytes", name, len(err.Error()))
		}
	}
	if n, err := NodeFromHello(hello(func(h *nodev1.Hello) { h.Driver = "580.65.06" }), 0, 1); err != nil || n.Driver != "580.65.06" {
		t.Errorf("a node with driver 580.65.06 has %+v, %v", n, err)
	}
	if _, err := NodeFromHello(hello(func(h *nodev1.Hello) { h.Driver = "580 1" }), 0, 1); err == nil {
		t.Error("a driver of two words is taken")
	}
}
