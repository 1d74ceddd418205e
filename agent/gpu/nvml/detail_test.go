//go:build linux && cgo

package nvml_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/nvml/nvmltest"
)

func TestLayout(t *testing.T) {
	if inChild(t) {
		return
	}
	f := newFake(t, nvmltest.Recent, "driver 580.1\ncuda 13000\n"+cardA+cardB+
		"persistence 0 1\npersistence 1 0\n"+
		"mig 1 MIG-2 10737418240 14 1 1 9 0 1g.10gb\n"+
		"mig 1 MIG-1 42949672960 42 3 1 2 1 -\n")
	cards := f.inventory()
	want := []gpu.Instance{
		{UUID: "MIG-1", Profile: "1c.3g.40gb", MemMiB: 40960, SMs: 42, GI: 2, CI: 1},
		{UUID: "MIG-2", Profile: "1g.10gb", MemMiB: 10240, SMs: 14, GI: 9},
	}
	if d := cmp.Diff(want, cards[1].Instances); d != "" {
		t.Errorf("instances (-want +got):\n%s", d)
	}
	if a, b := cards[0], cards[1]; a.MIG != gpu.ModeOff || b.MIG != gpu.ModeOn || a.Persistence != gpu.ModeOn || b.Persistence != gpu.ModeOff ||
		a.CUDA != "13.0" || a.Instances != nil {
		t.Errorf("modes: %+v\n%+v", a, b)
	}
	nvmltest.WriteScript(t, f.script, cardA+cardB+"mig 1 MIG-2 10737418240 14 1 1 9 0 1g.10gb\nmigproc MIG-2 7 1048576\nmigproc MIG-2 8 2097152\n")
	u := f.usage()
	wantUse := gpu.Usage{
		UUID: "MIG-2", UsedMiB: 3, UtilMilli: -1, PowerW: -1, MemActivityMilli: -1, EnergyMJ: -1,
		Processes: []gpu.Process{{PID: 7, Kinds: gpu.Compute, MemMiB: 1, UtilMilli: -1}, {PID: 8, Kinds: gpu.Compute, MemMiB: 2, UtilMilli: -1}},
	}
	if len(u) != 3 || cmp.Diff(wantUse, u[2]) != "" {
		t.Errorf("usage with an instance: %+v", u)
	}
	// A part of the layout that cannot be read makes the card unreadable, and
	// only that card.
	nvmltest.WriteScript(t, f.script, cardA+cardB+"mig 1 MIG-1 10737418240 14 1 1 9 0 x\nfail 1 nvmlDeviceGetMigDeviceHandleByIndex 999\n")
	cards, err := f.p.Inventory(t.Context())
	var ce *gpu.CardError
	if len(cards) != 1 || !errors.As(err, &ce) || ce.Index != 1 || ce.UUID != "GPU-bbbb" {
		t.Errorf("got %+v, %v", cards, err)
	}
}

func TestLinksBetweenCards(t *testing.T) {
	if inChild(t) {
		return
	}
	var base strings.Builder
	for i, uuid := range []string{"GPU-d", "GPU-b", "GPU-a", "GPU-c", "GPU-e"} {
		base.WriteString(strings.ReplaceAll(strings.ReplaceAll(
			"card UUID 85899345920 0 0 0 0 00000000:0N:00.0 NVIDIA H100\n", "UUID", uuid), "N", string(rune('1'+i))))
	}
	f := newFake(t, nvmltest.Recent, base.String())
	for _, tc := range []struct {
		name, links string
		want        map[string]int // of those in a group
	}{
		{"none", "", map[string]int{}},
		{"a bridge", "link 0 0 gpu 0000:02:00.0\nlink 1 3 gpu 00000000:01:00.0\n", map[string]int{"GPU-d": 1, "GPU-b": 1}},
		{"through others", "link 0 0 gpu 0000:02:00.0\nlink 1 0 gpu 0000:03:00.0\n", map[string]int{"GPU-d": 1, "GPU-b": 1, "GPU-a": 1}},
		{
			"two pairs", "link 0 0 gpu 0000:02:00.0\nlink 2 0 gpu 0000:04:00.0\n",
			map[string]int{"GPU-a": 1, "GPU-c": 1, "GPU-d": 2, "GPU-b": 2},
		},
		{
			"a switch", "link 0 0 switch 0000:F1:00.0\nlink 1 0 switch 0000:F1:00.0\nlink 2 0 switch 0000:F2:00.0\n",
			map[string]int{"GPU-a": 1, "GPU-b": 1, "GPU-d": 1},
		},
		{"a link that is down", "link 0 0 down 0000:02:00.0\n", map[string]int{}},
		{"a card of elsewhere", "link 0 0 gpu 0000:77:00.0\n", map[string]int{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nvmltest.WriteScript(t, f.script, base.String()+tc.links)
			got := map[string]int{}
			for _, c := range f.inventory() {
				if c.NVLinkGroup != 0 {
					got[c.UUID] = c.NVLinkGroup
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("groups (-want +got):\n%s", d)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	if inChild(t) {
		return
	}
	f := newFake(t, nvmltest.Recent, cardA+cardB+"rows 0 1 0\nretired 0 1\nrows 1 0 1\n")
	want := []gpu.Health{{UUID: "GPU-aaaa", RemapPending: true, RetirePending: true}, {UUID: "GPU-bbbb", RemapFailed: true}}
	got, err := f.p.Health(t.Context())
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("health: %v (-want +got):\n%s", err, d)
	}
	for _, call := range []string{"nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPagesPendingStatus"} {
		nvmltest.WriteScript(t, f.script, cardA+cardB+"fail 0 "+call+" 15\n")
		if got, err := f.p.Health(t.Context()); len(got) != 1 || !errors.Is(err, gpu.ErrLost) {
			t.Errorf("health of a card that %s finds lost: %+v, %v", call, got, err)
		}
	}
}

// A driver that supports nothing but the names and the memory of its cards
// gives those, and Unknown for the rest.
func TestBareDriver(t *testing.T) {
	if inChild(t) {
		return
	}
	f := newFake(t, nvmltest.Recent, "driver 1\n"+cardA+"proc 0 5 1048576\nbare\n")
	wantCards := []gpu.Card{{UUID: "GPU-aaaa", Type: "RTX-3090", Name: "NVIDIA GeForce RTX 3090", MemMiB: 24576, NUMA: gpu.Unknown, MIG: gpu.ModeOff}}
	if d := cmp.Diff(wantCards, f.inventory()); d != "" {
		t.Errorf("inventory (-want +got):\n%s", d)
	}
	want := []gpu.Usage{{UUID: "GPU-aaaa", UsedMiB: 7476, WithReserve: true, UtilMilli: -1, PowerW: -1, MemActivityMilli: -1, EnergyMJ: -1}}
	if d := cmp.Diff(want, f.usage()); d != "" {
		t.Errorf("usage (-want +got):\n%s", d)
	}
	h, err := f.p.Health(t.Context())
	if err != nil || len(h) != 1 || h[0] != (gpu.Health{UUID: "GPU-aaaa"}) {
		t.Errorf("health: %+v, %v", h, err)
	}
	if err := f.p.Watch(t.Context(), func(gpu.Event) {}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("watch: %v, want unsupported", err)
	}
}

// The lists of the driver overlap, repeat themselves and name pids that
// nobody has: no memory is counted twice, and none is given to the wrong one.
func TestProcessLists(t *testing.T) {
	if inChild(t) {
		return
	}
	const used = 7168
	f := newFake(t, nvmltest.Recent, cardA)
	for _, tc := range []struct {
		name, lists string
		want        []gpu.Process
	}{
		{"merged", "proc 0 9 1048576\ngfx 0 9 2097152\ngfx 0 3 1048576\nmps 0 9 1048576\n", []gpu.Process{
			{PID: 3, Kinds: gpu.Graphics, MemMiB: 1}, {PID: 9, Kinds: gpu.Compute | gpu.Graphics | gpu.MPSClient, MemMiB: 2, UtilMilli: gpu.Unknown},
		}},
		{"repeated in one list", "proc 0 9 1048576\nproc 0 9 1048576\n", []gpu.Process{{PID: 9, Kinds: gpu.Compute, MemMiB: 1}}},
		{"pid 0", "proc 0 0 1048576\nproc 0 9 1048576\n", []gpu.Process{{PID: 9, Kinds: gpu.Compute, MemMiB: 1}}},
		{"what pid 0 holds is nobody else's", "proc 0 0 1048576\nproc 0 9 -1\n", []gpu.Process{{PID: 9, Kinds: gpu.Compute, MemMiB: used - 1}}},
		{"two of which one has no pid", "proc 0 0 -1\nproc 0 9 -1\n", []gpu.Process{{PID: 9, Kinds: gpu.Compute, MemMiB: gpu.Unknown}}},
		{"known in one list", "proc 0 9 -1\nmps 0 9 1048576\n", []gpu.Process{{PID: 9, Kinds: gpu.Compute | gpu.MPSClient, MemMiB: 1, UtilMilli: gpu.Unknown}}},
		{"more than there is", "proc 0 8 8589934592\nproc 0 9 -1\n", []gpu.Process{
			{PID: 8, Kinds: gpu.Compute, MemMiB: 8192}, {PID: 9, Kinds: gpu.Compute, MemMiB: 0},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nvmltest.WriteScript(t, f.script, cardA+tc.lists)
			if d := cmp.Diff(tc.want, f.usage()[0].Processes); d != "" {
				t.Errorf("processes (-want +got):\n%s", d)
			}
		})
	}
}

func TestEnergy(t *testing.T) {
	if inChild(t) {
		return
	}
	f := newFake(t, nvmltest.Recent, cardA+cardB+"energy 0 123456789\n")
	if u := f.usage(); u[0].EnergyMJ != 123456789 || u[1].EnergyMJ != gpu.Unknown {
		t.Errorf("energy: %d and %d", u[0].EnergyMJ, u[1].EnergyMJ)
	}
}

func TestWatch(t *testing.T) {
	if inChild(t) {
		return
	}
	f := newFake(t, nvmltest.Recent, cardA+cardB)
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan gpu.Event, 8), make(chan error, 1)
	go func() { done <- f.p.Watch(ctx, func(e gpu.Event) { events <- e }) }()
	next := func() gpu.Event {
		t.Helper()
		select {
		case e := <-events:
			return e
		case err := <-done:
			t.Fatalf("watch ended: %v", err)
		case <-time.After(2 * time.Minute):
			t.Fatal("no event in two minutes")
		}
		return gpu.Event{}
	}
	nvmltest.WriteScript(t, f.script, cardB+cardA+"event GPU-bbbb 8 79\n")
	got := []gpu.Event{next()}
	// Other calls go on while it waits, whatever order the cards are in now.
	if u := f.usage(); len(u) != 2 || u[0].UUID != "GPU-bbbb" {
		t.Errorf("usage while it waits: %+v", u)
	}
	nvmltest.WriteScript(t, f.script, cardB+cardA+"event GPU-bbbb 8 79\nevent GPU-aaaa 2 0\n")
	got = append(got, next())
	want := []gpu.Event{
		{UUID: "GPU-bbbb", Kind: gpu.EventXid, Xid: 79, Detail: "Xid 79"},
		{UUID: "GPU-aaaa", Kind: gpu.EventECC, Detail: "double bit ECC error"},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(gpu.Event{}, "At")); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if slices.ContainsFunc(got, func(e gpu.Event) bool { return time.Since(e.At) > time.Minute }) {
		t.Error("an event has no time")
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("watch ended with %v", err)
	}
	// A wait that fails ends the watch and says nothing of the cards.
	nvmltest.WriteScript(t, f.script, cardA+cardB+"fail -1 nvmlEventSetWait_v2 999\n")
	if err := f.p.Watch(t.Context(), func(gpu.Event) {}); err == nil || !strings.Contains(err.Error(), "code 999") {
		t.Errorf("watch: %v", err)
	}
	if len(f.usage()) != 2 {
		t.Error("a failing wait cost a card")
	}
}
