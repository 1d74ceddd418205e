package dev

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDeadClustersAreCleared: the next cluster removes what one left that was killed, and
// nothing of one that runs, nor what is no cluster's.
func TestDeadClustersAreCleared(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	for _, dir := range []string{"berth-dev-1/c1/data", "berth-dev-1/n1/data/process", "berth-dev-2/c1", "berth-dev-of-0", "berth-dev-3/c1", "other/c1"} {
		if err := os.MkdirAll(filepath.Join(tmp, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := occupy(filepath.Join(tmp, "berth-dev-2"))
	if err != nil || runs == nil {
		t.Fatal(runs, err)
	}
	var said strings.Builder
	o := &Options{Dir: filepath.Join(tmp, "berth-dev-3"), Log: &said}
	left := func() (names []string) {
		entries, err := os.ReadDir(tmp)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	o.clearDead()
	if got, want := left(), []string{"berth-dev-2", "berth-dev-3", "berth-dev-of-0", "other"}; !slices.Equal(got, want) || said.Len() > 0 {
		t.Errorf("left are %v, want %v; said was %q", got, want, &said)
	}
	runs.Close()
	o.clearDead()
	if got := left(); slices.Contains(got, "berth-dev-2") {
		t.Errorf("when its cluster has ended: %v", got)
	}
}
