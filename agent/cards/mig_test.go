package cards

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/agent/gpu"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// cutting is a provider of one GPU in MIG mode that records its cuts.
type cutting struct {
	gpu.Provider
	busy string // an instance with a process
	fail error
	cuts []gpu.Cut
}

func (p *cutting) Usage(context.Context) ([]gpu.Usage, error) {
	return []gpu.Usage{{UUID: "GPU-1"}, {UUID: "MIG-1"}, {UUID: p.busy, Processes: []gpu.Process{{PID: 42}}}}, nil
}

func (p *cutting) Cut(_ context.Context, c gpu.Cut) error {
	p.cuts = append(p.cuts, c)
	return p.fail
}

// TestCutsAreGuarded: an instance that an attempt or a process has is not destroyed, none is
// where the site does not allow it, and the leader learns what failed.
func TestCutsAreGuarded(t *testing.T) {
	t.Parallel()
	p := &cutting{busy: "MIG-2"}
	nc := New(Config{GPUs: p, Recut: true, Log: slog.New(slog.DiscardHandler)}, NewSampler(nil, slog.New(slog.DiscardHandler)))
	held := func(uuid string) bool { return uuid == "MIG-3" }
	cut := func(drop ...string) string {
		err := nc.Cut(t.Context(), &nodev1.CutGPU{Uuid: "GPU-1", Drop: drop, Make: []*nodev1.MIGInstance{{Profile: "1g.10gb", Start: 3}}}, held)
		if !nc.States.TakeChanged() {
			t.Error("the leader is not told")
		}
		if said := nc.States.problems(); (err == nil) != (said == "") {
			t.Errorf("%v, the node's problem is %q", err, said)
		}
		if err == nil {
			return ""
		}
		return err.Error()
	}
	for _, c := range []struct{ drop, want string }{
		{"MIG-2", "process 42 is on instance MIG-2"}, {"MIG-3", "an attempt is on instance MIG-3"}, {"MIG-1", ""},
	} {
		if got := cut(c.drop); got != c.want {
			t.Errorf("%s: %q, want %q", c.drop, got, c.want)
		}
	}
	if len(p.cuts) != 1 || p.cuts[0].UUID != "GPU-1" || p.cuts[0].Drop[0] != "MIG-1" || p.cuts[0].Make[0] != (gpu.Piece{Profile: "1g.10gb", Start: 3}) {
		t.Errorf("cuts: %v", p.cuts)
	}
	p.fail = errors.New("in use")
	if got := cut("MIG-1"); got != "in use" || !strings.Contains(nc.States.problems(), "GPU GPU-1 was not cut anew: in use") {
		t.Error(got, nc.States.problems())
	}
	nc.cfg.Recut = false
	if err := nc.Cut(t.Context(), &nodev1.CutGPU{Uuid: "GPU-1"}, held); err == nil || len(p.cuts) != 2 {
		t.Error("cut although the site does not allow it")
	}
}

// TestWhatCanBeCut: only GPUs in MIG mode whose driver describes them, with all instances known.
func TestWhatCanBeCut(t *testing.T) {
	t.Parallel()
	profiles := []gpu.Profile{{Name: "1g.10gb", MemMiB: 9728, Compute: 1, Size: 1, Starts: []int{0, 1}}}
	in := gpu.Instance{UUID: "MIG-1", Profile: "1g.10gb", Start: 1, Size: 1}
	cards := []gpu.Card{
		{UUID: "GPU-1", Type: "A100", MIG: gpu.ModeOn, Profiles: profiles, Instances: []gpu.Instance{in}},
		{UUID: "GPU-2", MIG: gpu.ModeOff, Profiles: profiles}, {UUID: "GPU-3", MIG: gpu.ModeOn},
		{UUID: "GPU-4", MIG: gpu.ModeOn, Profiles: profiles, Instances: []gpu.Instance{in, {UUID: "MIG-4"}}},
	}
	nc := &Cards{cfg: Config{GPUs: &cutting{}, Recut: true}}
	got := nc.migCards(cards)
	if len(got) != 1 || got[0].Uuid != "GPU-1" || got[0].Type != "A100" || got[0].Instances[0].Start != 1 || len(got[0].Profiles[0].Starts) != 2 || got[0].Profiles[0].MemMib != 9728 {
		t.Errorf("can be cut: %v", got)
	}
	nc.cfg.Recut = false
	if got := nc.migCards(cards); got != nil {
		t.Errorf("can be cut although the site does not allow it: %v", got)
	}
}
