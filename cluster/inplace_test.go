package cluster

import (
	"strings"
	"testing"
	"time"
)

// TestWhatComesAndLeavesIsOneProgram: a job to whose range of nodes others come says what
// is asked of it, in words where it cannot be.
func TestWhatComesAndLeavesIsOneProgram(t *testing.T) {
	t.Parallel()
	good := func() *Spec {
		return &Spec{
			Name: "j", Command: []string{"torchrun", "train.py"}, Dir: "/", GPUs: 1, Nodes: 1, NodeRange: NodeRange{Min: 1, Max: 4}, InPlace: true,
			Checkpoint: Checkpoint{Signal: "TERM", Grace: time.Minute},
		}
	}
	for name, tc := range map[string]struct {
		change func(s *Spec)
		want   string
	}{
		"as it is":           {func(*Spec) {}, ""},
		"on the host's net":  {func(s *Spec) { s.Image, s.Container.Network = "x", NetHost }, ""},
		"of one size":        {func(s *Spec) { s.NodeRange = NodeRange{} }, "ask for one, such as --nodes 1-4"},
		"of a range of GPUs": {func(s *Spec) { s.NodeRange, s.GPURange = NodeRange{}, GPURange{1, 2} }, "ask for one, such as --nodes 1-4"},
		"numbered":           {func(s *Spec) { s.Tasks = 2 }, "drop --tasks"},
		"a script":           {func(s *Spec) { s.Script = []byte("x") }, "-- sh train.sh"},
		"that cannot save":   {func(s *Spec) { s.Checkpoint = Checkpoint{} }, "--checkpoint TERM@60s"},
		"alone in a network": {func(s *Spec) { s.Container.Network = NetNone }, "--net host"},
		"an image by itself": {func(s *Spec) { s.Image = "x" }, "--net host"},
		"an array":           {func(s *Spec) { s.Array = &Array{} }, "nodes and array"},
	} {
		s := good()
		tc.change(s)
		got := ""
		if err := s.checkElastic(); err != nil {
			got = err.Error()
		}
		if got == "" != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestPartsThatCameAndLeft: what is told of an attempt is of the nodes that it has.
func TestPartsThatCameAndLeft(t *testing.T) {
	t.Parallel()
	gpu := func(id GPUID) []GPUShare { return []GPUShare{{GPU: id}} }
	a := &Attempt{
		State: JobRunning, Token: 5, Started: 10, GPUMilli: 4000, Berth: Berth{Node: "n1", GPUs: gpu("a")},
		Gang: &Gang{
			Go:    true,
			Rest:  []Berth{{Node: "n2", GPUs: gpu("b")}, {Node: "n3", GPUs: gpu("c")}, {Node: "n2", GPUs: gpu("d")}},
			Parts: []Part{{State: JobRunning}, {State: JobPreempted, Left: 7}, {State: JobRunning, Token: 8, Left: 9}, {State: JobRunning, Token: 9}},
		},
		Changes: []SizeChange{{At: 30}},
	}
	if a.Width() != 2 || a.Rank("n2") != 3 || a.TokenOf(3) != 9 || a.TokenOf(0) != 5 || !a.Gang.Changed() || a.SizedAt() != 30 || a.HoldsMilli() != 3000 {
		t.Errorf("%d nodes, rank %d, tokens %d and %d, since %d, %d held", a.Width(), a.Rank("n2"), a.TokenOf(3), a.TokenOf(0), a.SizedAt(), a.HoldsMilli())
	}
	if ids, gpus := a.NodeIDs(), a.AllGPUs(); len(ids) != 3 || ids[1] != "n3" || ids[2] != "n2" || len(gpus) != 3 || gpus[2].GPU != "d" {
		t.Errorf("on %v with %v", ids, gpus)
	}
	plain := &Attempt{State: JobRunning, Started: 10, Berth: Berth{Node: "n1"}}
	if plain.Width() != 1 || !plain.Stays(0) || plain.Gang.Changed() || plain.SizedAt() != 10 || plain.TokenOf(0) != 0 {
		t.Error("of one node it is as it was")
	}
}
