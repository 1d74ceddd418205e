package admin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/admin"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
)

// TestWhyANodeIsUp is told where a node is shown, and is no fault where nodes are listed; why one
// could not be powered down is.
func TestWhyANodeIsUp(t *testing.T) {
	t.Parallel()
	f := clitest.NewFake()
	const why = "of 2 nodes with 1xT4, 2 are up and 0 needed"
	for _, c := range []struct {
		name, state string
		idle        bool
		shown       string
		fault       string
	}{
		{"kept up", "ready", true, "idle since 2026-03-14 14:09:26: " + why, ""},
		{"not powered down", "ready", false, why, why},
		{"powered down", "powered-down", true, "powered-down since 2026-03-14 14:09:26: " + why, why},
	} {
		n := f.Nodes[1]
		n.State, n.PowerReason, n.PowerSince = c.state, why, nil
		if c.idle {
			n.PowerSince = clitest.Ago(time.Hour)
		}
		if got := admin.PowerFault(n); got != c.fault {
			t.Errorf("%s: the fault %q, want %q", c.name, got, c.fault)
		}
		w := clitest.NewWorld(t)
		w.Serve("/a", f)
		if w.Run("node", "show", n.Id); !strings.Contains(w.Out.String(), c.shown) {
			t.Errorf("%s: %s\nwant %q", c.name, w.Out.String(), c.shown)
		}
		w = clitest.NewWorld(t)
		w.Serve("/a", f)
		if w.Run("node", "list", n.Id); strings.Contains(w.Out.String(), why) != (c.fault != "") {
			t.Errorf("%s: %s", c.name, w.Out.String())
		}
	}
}
