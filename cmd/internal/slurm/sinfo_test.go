package slurm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func recordedNodes(t *testing.T) ([]Partition, []Node) {
	t.Helper()
	n := func(name string, cpus int64, used string) Node {
		return Node{Name: name, Addr: "127.0.0.1", Host: "ctl-a", State: StateOf(true, false, cpus, 8), CPUs: 8, CPUsUsed: cpus, Load: "4.27",
			MemMiB: 4096, FreeMem: 21110, Gres: "gpu:fake:8,shard:fake:32", GresUsed: used, Partitions: []string{"main", "parked"}}
	}
	both := []string{"n1", "n2"}
	return []Partition{{Name: "main", Default: true, Up: true, Nodes: both}, {Name: "parked", Nodes: both}},
		[]Node{n("n1", 1, "gpu:fake:4(IDX:0-3),shard:fake:0"), n("n2", 2, "gpu:fake:8(IDX:0-7),shard:fake:0")}
}

// TestSinfoAsRecorded prints the recorded session as Slurm did.
func TestSinfoAsRecorded(t *testing.T) {
	const letters = "%P|%a|%l|%D|%t|%T|%N|%c|%C|%m|%G|%f|%O|%e|%z|%X|%Y|%Z|%E|%H|%u|%U|%w|%d|%A|%F|%B|%g|%h|%I|%L|%M|%n|%o|%p|%r|%R|%s|%S"
	for _, c := range []struct {
		file string
		s    Sinfo
	}{
		{"sinfo", Sinfo{}}, {"sinfo_l", Sinfo{Long: true}}, {"sinfo_s", Sinfo{Summary: true}}, {"sinfo_R", Sinfo{Reasons: true}},
		{"sinfo_o1", Sinfo{Format: letters}}, {"sinfo_o2", Sinfo{NoHead: true, Format: "%10P %.5a %.10l %.6D %.6t %N"}},
		{"sinfo_O", Sinfo{Fields: "nodelist,cpus,memory,gres,gresused,statelong,partition"}},
		{"sinfo_n", Sinfo{Nodes: []string{"n1"}}}, {"sinfo_h", Sinfo{NoHead: true}}, {"sinfo_Nl", Sinfo{Each: true, Long: true}},
	} {
		t.Run(c.file, func(t *testing.T) {
			parts, nodes := recordedNodes(t)
			same(t, c.file, &c.s, parts, nodes)
		})
	}
	t.Run("sinfo_R2", func(t *testing.T) {
		parts, nodes := recordedNodes(t)
		nodes[1].State, nodes[1].Reason, nodes[1].User, nodes[1].ReasonAt = StateOf(true, true, 2, 8), "GPU 2 ECC", "root", at(t, "10:41:23")
		same(t, "sinfo_R2", &Sinfo{Reasons: true}, parts, nodes)
	})
}

// TestReasonsAsRecorded holds sinfo -R -l.
func TestReasonsAsRecorded(t *testing.T) {
	_, nodes := recordedNodes(t)
	nodes = append(nodes, nodes[1])
	when := time.Date(2026, 11, 22, 14, 28, 16, 0, time.UTC)
	for i, why := range []string{"", "GPU 2 ECC", "power"} {
		n := &nodes[i]
		n.Name, n.State, n.Reason, n.User, n.ReasonAt = "n"+string(rune('1'+i)), []string{"IDLE", "IDLE+DRAIN", "DOWN"}[i], why, "root", when
	}
	var got strings.Builder
	if err := (&Sinfo{Reasons: true, Long: true}).Print(&got, []Partition{{Name: "main", Default: true, Up: true, Nodes: []string{"n1", "n2", "n3"}}}, nodes, when); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(recordedText(t, "sinfo_Rl"), got.String()); d != "" {
		t.Errorf("differs from Slurm (-) (+ours):\n%s", d)
	}
}

func same(t *testing.T, file string, s *Sinfo, parts []Partition, nodes []Node) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", "recorded", file+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := s.Print(&got, parts, nodes, at(t, "10:41:23")); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); d != "" {
		t.Errorf("differs from Slurm (-) (+ours):\n%s", d)
	}
}

// TestUnfold: as scontrol show hostnames was recorded, and lists that are none.
func TestUnfold(t *testing.T) {
	got, err := Unfold("n[1-3,07],c1")
	if want := []string{"n1", "n2", "n3", "n07", "c1"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if got, err := Unfold("r[1-2]n[1-2]"); err != nil || strings.Join(got, " ") != "r1n1 r1n2 r2n1 r2n2" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"n[1-3", "n[3-1]", "n[a]", "n[]", "n[1-99999999]", "n[1-9999]m[1-9999]", "n]1["} {
		if got, err := Unfold(bad); err == nil {
			t.Errorf("%s: got %d names, want an error", bad, len(got))
		}
	}
}

// TestNoNodesAsRecorded: a partition of which no node was asked for has a line
// all the same, as sinfo 22.05.8 -d wrote it.
func TestNoNodesAsRecorded(t *testing.T) {
	var got strings.Builder
	s := Sinfo{Dead: true, NoHead: true}
	if err := s.Print(&got, []Partition{{Name: "main", Default: true, Up: true, Nodes: []string{"n1"}}}, []Node{{Name: "n1", State: "IDLE"}}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if want := "main*        up   infinite      0    n/a \n"; got.String() != want {
		t.Errorf("%q, want %q", got.String(), want)
	}
}

// TestPoweredNodes are marked as Slurm 22.05 marks them, and counted as idle ones.
func TestPoweredNodes(t *testing.T) {
	t.Parallel()
	part := []Partition{{Name: "all", Up: true, Nodes: []string{"n1", "n2", "n3", "n4", "n5"}}}
	var nodes []Node
	for i, state := range []string{"IDLE" + PoweredDown, "IDLE" + PoweringDown, "IDLE" + PoweringUp, "IDLE+DRAIN" + PoweredDown, InReservation("IDLE") + PoweredDown} {
		nodes = append(nodes, Node{Name: part[0].Nodes[i], State: state, CPUs: 8})
	}
	for format, want := range map[string]string{
		"%N %t": "n1 idle~|n2 idle%|n3 idle#|n4 drain~|n5 resv~", "%N %T": "n1 idle~|n2 idle%|n3 idle#|n4 drained~|n5 reserved~",
	} {
		var got strings.Builder
		if err := (&Sinfo{NoHead: true, Each: true, Format: format}).Print(&got, part, nodes, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if lines := strings.ReplaceAll(strings.TrimSpace(got.String()), "\n", "|"); lines != want {
			t.Errorf("%s: %s, want %s", format, lines, want)
		}
	}
	var got strings.Builder
	if err := (&Sinfo{NoHead: true, Format: "%F %C"}).Print(&got, part, nodes[:3], time.Time{}); err != nil || strings.TrimSpace(got.String()) != "0/3/0/3 0/24/0/24" {
		t.Errorf("%q, %v", got.String(), err)
	}
	for _, chosen := range []string{"idle~", "idle"} {
		got.Reset()
		_ = (&Sinfo{NoHead: true, Each: true, Format: "%N", States: []string{chosen}}).Print(&got, part, nodes, time.Time{})
		if want := map[string]string{"idle~": "n1\n", "idle": ""}[chosen]; got.String() != want {
			t.Errorf("-t %s: %q, want %q", chosen, got.String(), want)
		}
	}
}
