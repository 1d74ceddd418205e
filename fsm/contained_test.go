package fsm

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// contained asks for all that version 8 knows.
func contained() *cluster.Spec {
	s := spec(1)
	s.Image, s.Truncate = "registry/train:1", true
	s.Warning = cluster.Warning{Signal: "USR1", Before: time.Minute, First: true}
	s.Container = cluster.Container{
		Network: cluster.NetNone, ReadOnly: true, TmpMiB: 64, ShmMiB: 32,
		Mounts: []cluster.Mount{{Source: "/data", Target: "/mnt", ReadOnly: true}, {Source: "/home/a", Target: "/home/a"}},
	}
	return s
}

// TestVersionOfContainers: whoever does not know what a job asks for would
// run it without.
func TestVersionOfContainers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*cluster.Spec){
		"warning":   func(s *cluster.Spec) { s.Warning = cluster.Warning{Signal: "USR1", Before: time.Minute} },
		"truncate":  func(s *cluster.Spec) { s.Truncate = true },
		"container": func(s *cluster.Spec) { s.Container.Network = cluster.NetNone },
	} {
		s := spec(1)
		if got := NeedsVersion(submitCmd(1, "0123456789abcdef", 1000, s)); got != 1 {
			t.Fatalf("a plain job needs version %d", got)
		}
		change(s)
		if got := NeedsVersion(submitCmd(1, "0123456789abcdef", 1000, s)); got != 8 {
			t.Errorf("%s: version %d, want 8", name, got)
		}
	}
	p := &cluster.Partition{Name: "a", Nodes: hosts(t, "n1"), Networks: []cluster.Network{cluster.NetNone}}
	if got := NeedsVersion(partitionCmd(p, 0)); got != 8 {
		t.Errorf("networks of a partition: version %d, want 8", got)
	}
}
