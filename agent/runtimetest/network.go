package runtimetest

import (
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// testNetwork checks that a job without a network sees a working loopback interface and nothing
// else, and that another sees the node's network.
func testNetwork(h *harness) {
	const look = `sed -n 's/^ *\([^:]*\):.*/\1/p' /proc/net/dev; grep -q '127.0.0.1' /proc/net/fib_trie && echo up`
	seen := func(n cluster.Network) []string {
		l := h.sh(look)
		l.Network = n
		if task := h.run(l); task.ExitCode != 0 {
			h.Fatalf("network %q: %+v", n, task)
		}
		h.until("what it sees", func() bool { return slices.Contains(h.printed(l.Stdout), "up") })
		return h.printed(l.Stdout)
	}
	if got := seen(cluster.NetNone); !slices.Equal(got, []string{"lo", "up"}) {
		h.Errorf("without a network a job sees %s", strings.Join(got, ", "))
	}
	node := h.sh(look) // of the test itself
	node.Network = cluster.NetHost
	h.run(node)
	h.until("what it sees", func() bool { return slices.Contains(h.printed(node.Stdout), "up") })
	if got := h.printed(node.Stdout); len(got) < 2 || got[0] == "" {
		h.Errorf("with the node's network a job sees %q", got)
	}
}
