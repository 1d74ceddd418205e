package admin_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

// TestSwitchesGolden has what administrators switch off and on again at once: the
// sharing of cards, and who may take part.
func TestSwitchesGolden(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"gpu-sharing": {
			"gpu sharing list", "gpu sharing off n7/2 --reason caps", "gpu sharing off --partition train --reason benchmarks", "gpu sharing off --cluster --reason driver",
			"gpu sharing off --node n3 --reason x", "gpu sharing on --partition train", "gpu sharing list", "gpu sharing off n7/2", "gpu sharing off --reason x", "gpu sharing off n7 --reason x",
			"gpu sharing off --node n3 --cluster --reason x",
		},
		"deny": {
			"deny", "deny node n7", "deny serial serial=0A:5F:3C", "deny coordinator c2", "allow node n7", "allow node n7", "deny", "deny n7", "deny user ann", "allow", "allow serial 0a5f3c",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, out := clitest.NewWorld(t), ""
			w.Serve("/a", clitest.NewFake())
			for _, line := range lines {
				out += w.Transcript(strings.Fields(line)...)
			}
			golden.Check(t, name, out)
		})
	}
}
