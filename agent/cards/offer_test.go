package cards

import (
	"log/slog"
	"testing"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// TestOnlyOurs: of the cards that are another scheduler's nothing is offered
// and nothing is told, their instances included.
func TestOnlyOurs(t *testing.T) {
	t.Parallel()
	cards := []gpu.Card{{UUID: "GPU-0", Index: 0, Instances: []gpu.Instance{{UUID: "MIG-0"}}}, {UUID: "GPU-1", Index: 1}}
	usage := []gpu.Usage{{UUID: "GPU-0"}, {UUID: "MIG-0"}, {UUID: "GPU-1"}}
	a := &Cards{cfg: Config{Only: gpu.Offer{"1", "9"}}, log: slog.New(slog.DiscardHandler)}
	if got := a.oursUsed(usage); len(got) != 0 {
		t.Errorf("told of %v before it is known whose they are", got)
	}
	if got := a.ours(t.Context(), cards); len(got) != 1 || got[0].UUID != "GPU-1" {
		t.Errorf("offers %v", got)
	}
	if got := a.oursUsed(usage); len(got) != 1 || got[0].UUID != "GPU-1" || len(usage) != 3 || usage[0].UUID != "GPU-0" {
		t.Errorf("tells of %v, of %v", got, usage)
	}
	all := &Cards{}
	if len(all.ours(t.Context(), cards)) != 2 || len(all.oursUsed(usage)) != 3 {
		t.Error("without a list some are not ours")
	}
}
