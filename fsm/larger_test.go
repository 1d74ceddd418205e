package fsm

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
)

// sized is a node whose GPUs are of another type and size.
func sized(id cluster.NodeID, gpus int, gpuType string, sellable int64) *cluster.Node {
	n := node(id, "boot1", gpus)
	for i := range n.GPUs {
		g := &n.GPUs[i]
		g.Type, g.MemMiB, g.SellableMiB = gpuType, sellable+960, sellable
	}
	return n
}

func all(gpu cluster.GPUID, mib int64) cluster.GPUShare {
	return cluster.GPUShare{GPU: gpu, Share: cluster.Share{MemMiB: mib, Milli: cluster.WholeGPU, Exclusive: true}}
}

// TestOutOfAWholeGPU: who was too large for a whole card gets a larger one as
// long as there is one on which it could ever run.
func TestOutOfAWholeGPU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		job   func(*cluster.Spec)
		more  []*cluster.Node
		least int64  // 0 is final
		says  string // when it is
	}{
		{"there is no larger", nil, nil, 0, "it had all 40000 MiB of a A100, and no larger GPU could ever run it"},
		{"a larger", nil, []*cluster.Node{sized("h1", 1, "H100", 80_000)}, 44_000, ""},
		{"a little larger", nil, []*cluster.Node{sized("h1", 1, "H100", 41_000)}, 41_000, ""},
		{"as large", nil, []*cluster.Node{sized("h1", 1, "H100", 40_000)}, 0, "no larger GPU"},
		{"another type is asked for", func(s *cluster.Spec) { s.GPUType = "A100" }, []*cluster.Node{sized("h1", 1, "H100", 80_000)}, 0, "no larger GPU"},
		{"another node is asked for", func(s *cluster.Spec) { s.Node = "n1" }, []*cluster.Node{sized("h1", 1, "H100", 80_000)}, 0, "no larger GPU"},
		{"too few cores beside the larger", func(s *cluster.Spec) { s.CPUMilli = 64_001 }, []*cluster.Node{sized("h1", 1, "H100", 80_000)}, 0, "no larger GPU"},
		{"a declared cap", func(s *cluster.Spec) { s.GPUMemMiB = 40_000 }, []*cluster.Node{sized("h1", 1, "H100", 80_000)}, 0, "it declares 40000 MiB"},
		{"not in its partition", func(s *cluster.Spec) { s.Partition = "a100" }, []*cluster.Node{sized("h1", 1, "H100", 80_000)}, 0, "no larger GPU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := lab(t)
			m.must(partitionCmd(&cluster.Partition{Name: "a100", Nodes: hosts(t, "ALL"), GPUTypes: []string{"A100"}}, 0))
			for _, n := range c.more {
				m.must(registerCmd(n))
			}
			s := spec(1)
			if c.job != nil {
				c.job(s)
			}
			id := m.submit(s)
			m.start(id, whole("n1-g0"))
			m.oom(id, 40_000)
			if c.least == 0 {
				j := m.wantState(id, cluster.JobOutOfMemory)
				if j.Reason.Code != cluster.ReasonGPUOOM || !strings.Contains(j.Reason.Detail, c.says) {
					t.Fatalf("reason %s, want %q", j.Reason, c.says)
				}
				return
			}
			j := m.wantState(id, cluster.JobPending)
			if j.MinGPUMemMiB != c.least || !j.NeedWhole {
				t.Fatalf("least %d, whole %t, want %d and whole", j.MinGPUMemMiB, j.NeedWhole, c.least)
			}
		})
	}
}

// TestLargerAndLargerEnds: each whole card must be larger than the last, also
// when the larger ones are out of service and the job is laid on the same again.
func TestLargerAndLargerEnds(t *testing.T) {
	t.Parallel()
	m := lab(t)
	m.must(registerCmd(sized("h1", 1, "H100", 80_000)))
	m.must(registerCmd(sized("h2", 2, "H200", 140_000)))
	id := m.submit(spec(1))
	m.start(id, share1("n1-g0", 8000, 300))
	m.oom(id, 8000)
	m.start(id, share1("n1-g0", 12_000, 300))
	m.oom(id, 12_000)
	m.start(id, whole("n1-g0"))
	m.oom(id, 40_000)
	m.start(id, all("h1-g0", 80_000))
	m.oom(id, 80_000)
	if j := m.wantState(id, cluster.JobPending); j.MinGPUMemMiB != 88_000 {
		t.Fatalf("least %d", j.MinGPUMemMiB)
	}
	m.start(id, whole("n1-g0"))
	m.oom(id, 40_000)
	if j := m.wantState(id, cluster.JobOutOfMemory); !strings.Contains(j.Reason.Detail, "no less before; the largest that could ever run it is H200 with 140000 MiB") {
		t.Fatalf("reason %s", j.Reason)
	}

	two := m.submit(spec(2)) // two of the largest are on one node, and one of the next
	m.start(two, whole("n1-g0"), whole("n1-g1"))
	m.oom(two, 40_000)
	m.start(two, all("h2-g0", 140_000), all("h2-g1", 140_000))
	m.oom(two, 140_000)
	if j := m.wantState(two, cluster.JobOutOfMemory); !strings.Contains(j.Reason.Detail, "all 140000 MiB of a H200, and no larger") {
		t.Fatalf("reason %s", j.Reason)
	}
}

// TestOldEntriesKeepTheOldLadder: what was once committed means what it meant.
func TestOldEntriesKeepTheOldLadder(t *testing.T) {
	t.Parallel()
	for version, want := range map[uint32]cluster.JobState{command.LargerVersion - 1: cluster.JobOutOfMemory, command.LargerVersion: cluster.JobPending} {
		m := lab(t)
		m.must(registerCmd(sized("h1", 1, "H100", 80_000)))
		id := m.submit(spec(1))
		m.start(id, whole("n1-g0"))
		r := m.reportOf(id, cluster.JobOutOfMemory)
		r.Usage = usage(40_000, true)
		m.reported(version, r)
		if j := m.job(id); j.State != want {
			t.Errorf("version %d: %s, want %s", version, j.State, want)
		}
	}
}
