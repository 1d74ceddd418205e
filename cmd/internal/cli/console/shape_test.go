package console

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestCompareCells: each list is in its order, however it was before.
func TestCompareCells(t *testing.T) {
	for name, order := range map[string][]string{
		"ids":     {"9", "12", "12_2", "12_10", "12_[11-20]", "100", "-"},
		"names":   {"gpu2", "gpu10", "gpu010a", "n1"},
		"memory":  {"512 MiB", "1.5 GiB", "40 GiB", "1 TiB", "-"},
		"given":   {"512/1024M", "3.0/78.0G", "12.0/40.0G", "1.0/1.5T"},
		"percent": {"0%", "9%", "30%", "100%"},
		"times":   {"0:00", "0:58", "3:04", "2:03:04", "1-02:03:04", "10-00:00:00", ""},
		"numbers": {"-1", "0", "2", "10"},
	} {
		got := slices.Clone(order)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortStableFunc(got, compareCells)
		if !slices.Equal(got, order) {
			t.Errorf("%s: %q, want %q", name, got, order)
		}
	}
}

// TestColumn: a column is named in any case and without what is in brackets; of others
// the right ones are said.
func TestColumn(t *testing.T) {
	table := &Table{Cols: []Column{{Head: "JOBID"}, {Head: "NODE(REASON)"}}}
	for name, want := range map[string]int{"jobid": 0, "Node": 1, "node(reason)": 1} {
		if i, err := table.column("--sort", name); err != nil || i != want {
			t.Errorf("%s: %d, %v", name, i, err)
		}
	}
	_, err := table.column("--sort", "jobib")
	if err == nil || !strings.Contains(err.Error(), `--sort: no column "jobib"; want some of JOBID, NODE`) {
		t.Errorf("jobib: %v", err)
	}
}
