//go:build gpu

package caps_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/gpu/nvml"
)

// realCards returns the cards of this machine as they are offered.
func realCards(t *testing.T) []gpu.Card {
	t.Helper()
	p, err := nvml.New(nvml.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		if errors.Is(err, gpu.ErrNoDriver) {
			t.Skip("this machine has no NVIDIA driver")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	cards, err := p.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if cards = caps.Sold(cards); len(cards) == 0 {
		t.Skip("this machine has no NVIDIA GPU that can be offered")
	}
	return cards
}

// TestModesOfRealCards: a card whose processes are reported is shared under
// the watch at least, and says why not under more.
func TestModesOfRealCards(t *testing.T) {
	c := caps.Chooser{Policy: site(), Host: caps.ReadHost("/")}
	for _, card := range realCards(t) {
		ch := c.Choose(card)
		t.Logf("%s %s, driver %s, CUDA %s: %s; %s", card.UUID, card.Type, card.Driver, card.CUDA, ch.Mode, ch)
		if ch.Mode == caps.None {
			t.Errorf("%s is not shared: %s", card.UUID, ch)
		}
		if ch.Mode == caps.Dmem && c.Host.Limiter == nil {
			t.Errorf("%s is said to be held by a limit that cannot be set", card.UUID)
		}
	}
}

// TestDaemonOnARealCard runs MPS's own control program.
func TestDaemonOnARealCard(t *testing.T) {
	card := realCards(t)[0]
	host := caps.ReadHost("/")
	switch {
	case host.MPSControl == "":
		t.Skip("nvidia-cuda-mps-control is not installed")
	case !host.Root:
		t.Skip("needs root")
	case caps.IsInstance(card.UUID):
		t.Skip("the card is cut into instances")
	}
	cfg := caps.DaemonsConfig{Control: host.MPSControl, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	d := caps.NewDaemons(cfg)
	cl := caps.Client{Attempt: "j1-a1", MemMiB: 1024, Milli: 500}
	env := join(t, d, card.UUID, cl)
	t.Logf("clients get %q", env)
	if f := d.Check(t.Context(), card.UUID); f != nil {
		t.Errorf("a daemon that has just begun: %+v", f)
	}
	d = caps.NewDaemons(cfg) // another agent finds it
	join(t, d, card.UUID, cl)
	if err := d.Leave(t.Context(), card.UUID, cl.Attempt); err != nil {
		t.Fatal(err)
	}
	if err := caps.NewDaemons(cfg).Sweep(t.Context()); err != nil {
		t.Error(err)
	}
}
