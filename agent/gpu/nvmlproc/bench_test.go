//go:build linux && cgo

package nvmlproc

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkUsage is one look at eight cards with three processes each, through
// the child: what the agent does four times a second while jobs run.
func BenchmarkUsage(b *testing.B) {
	var script strings.Builder
	for i := range 8 {
		fmt.Fprintf(&script, "card GPU-%d 85899345920 910163968 3221225472 0 0 00000000:%02X:00.0 NVIDIA A100\n", i, i+1)
	}
	for i := range 8 {
		for k := range 3 {
			fmt.Fprintf(&script, "proc %d %d 1073741824\n", i, 100+10*i+k)
		}
	}
	n := newNode(b, Config{}, script.String())
	for b.Loop() {
		if u, err := n.usage(); err != nil || len(u) != 8 {
			b.Fatalf("%d cards, %v", len(u), err)
		}
	}
}
