package daemon

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

func TestPlannerOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, planner string
		mode          scheduler.Mode
		wrong         string
	}{
		{name: "ffd", mode: scheduler.ModeFFD},
		{name: "slot", mode: scheduler.ModeSlot},
		{name: "slot+sjf", planner: "slot+sjf", mode: scheduler.ModeSlot},
		{name: "fgd", planner: "fgd", mode: scheduler.ModeFFD},
		{name: "best", wrong: `policy "best" is not known`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			base := scheduler.Default()
			p, err := plannerOf(c.name, &base, policies.Options{})
			switch {
			case c.wrong != "":
				if err == nil || !strings.HasPrefix(err.Error(), c.wrong) {
					t.Errorf("got %v, want %q", err, c.wrong)
				}
			case err != nil, (p == nil) != (c.planner == ""), p != nil && p.Name() != c.planner, base.Mode != c.mode:
				t.Errorf("planner %v, mode %s, %v; want %q and %s", p, base.Mode, err, c.planner, c.mode)
			}
		})
	}
}
