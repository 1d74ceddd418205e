package view_test

import (
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func TestPowerText(t *testing.T) {
	t.Parallel()
	on := func(node string, index uint32, watts, mhz int64, why string) *apiv1.CardPower {
		return &apiv1.CardPower{Node: node, Index: index, CapW: watts, ClockMhz: mhz, Why: why}
	}
	for _, c := range []struct {
		want  string
		cards []*apiv1.CardPower
	}{
		{"", nil},
		{"cap 250 W, clock 1200 MHz on gpu1:0", []*apiv1.CardPower{on("gpu1", 0, 250, 1200, "")}},
		{"cap 250 W on gpu1:0,1 gpu2:3", []*apiv1.CardPower{on("gpu2", 3, 250, 0, ""), on("gpu1", 1, 250, 0, ""), on("gpu1", 0, 250, 0, "")}},
		{"clock 900 MHz on gpu1:0; as it was on gpu1:1,2 (no permission); clock 900 MHz on gpu2:0 (900 MHz is the nearest clock to 1000)", []*apiv1.CardPower{
			on("gpu1", 0, 0, 900, ""), on("gpu1", 1, 0, 0, "no permission"), on("gpu1", 2, 0, 0, "no permission"), on("gpu2", 0, 0, 900, "900 MHz is the nearest clock to 1000"),
		}},
	} {
		if got := view.PowerText(c.cards); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
