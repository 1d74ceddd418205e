package screen

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/admin"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

var nodeSorts = []string{"node", "state", "jobs", "free"}

func (s *Screen) makeNodeRows() []*apiv1.Node {
	low := strings.ToLower(s.filters[TabNodes])
	var rows []*apiv1.Node
	for _, n := range s.nodes {
		if low == "" || strings.Contains(strings.ToLower(n.GetId()+" "+admin.NodeState(n)+" "+strings.Join(n.GetPartitions(), " ")), low) {
			rows = append(rows, n)
		}
	}
	by := s.sorts[TabNodes]
	slices.SortFunc(rows, func(a, b *apiv1.Node) int {
		n := 0
		switch nodeSorts[by.by] {
		case "state":
			n = strings.Compare(admin.NodeState(a), admin.NodeState(b))
		case "jobs":
			n = len(b.GetJobs()) - len(a.GetJobs())
		case "free":
			n = cmp.Compare(freeGPUMem(b), freeGPUMem(a))
		}
		n = cmp.Or(n, natural(a.GetId(), b.GetId()))
		if by.reverse {
			return -n
		}
		return n
	})
	return rows
}

func freeGPUMem(n *apiv1.Node) int64 {
	free := int64(0)
	for _, g := range n.GetGpus() {
		free += g.GetSellableMib() - g.GetLedgerUsedMib()
	}
	return free
}

func (s drawing) nodeTable() table {
	t := table{
		cols: []column{
			{head: "NODE", width: 12}, {head: "STATE", width: 12}, {head: "GPUS", width: 5, right: true}, {head: "GPU MEMORY", width: 14, grow: true, rank: 1},
			{head: "BUSY", width: 4, right: true}, {head: "CPUS", width: 9, right: true, rank: 1}, {head: "MEMORY", width: 11, right: true, rank: 2}, {head: "JOBS", width: 4, right: true},
			{head: "PARTITIONS", width: 12, rank: 4}, {head: "VERSION", width: 9, rank: 5}, {head: "REASON", width: 12, rank: 3, grow: true},
		},
		n:     len(s.nodeRows),
		key:   func(i int) string { return s.nodeRows[i].GetId() },
		cells: func(i int) []cell { return s.nodeCells(s.nodeRows[i]) },
		empty: "no node is registered",
	}
	switch {
	case !s.gotNodes:
		t.empty = "loading the nodes …"
	case s.filters[TabNodes] != "":
		t.empty = "no node matches; Esc clears the filter"
	}
	return t
}

func (s drawing) nodeCells(n *apiv1.Node) []cell {
	var given, total, busy, measured, held int64
	for _, g := range n.GetGpus() {
		given, total = given+g.GetLedgerUsedMib(), total+g.GetSellableMib()
		if u := g.GetMeasuredUtilMilli(); u >= 0 {
			busy, measured = busy+u, measured+1
		}
		if g.GetShares() > 0 {
			held++
		}
	}
	mean := int64(-1)
	if measured > 0 {
		mean = busy / measured
	}
	state := admin.NodeState(n)
	st := green
	if state != cluster.NodeReady.String() && !admin.SavesPower(n) {
		st = red
	}
	return []cell{
		text(clean(n.GetId())), styled(st, clean(state)), text(strconv.FormatInt(held, 10) + "/" + strconv.Itoa(len(n.GetGpus()))),
		{draw: func(k ink, width int) string { return k.bar([]part{{given, given}}, 0, total, width) }},
		text(percent(mean)), text(console.Cores(n.GetCpuUsedMilli()) + "/" + console.Cores(n.GetCpuMilli())),
		text(gib(n.GetMemUsedMib()) + "/" + gib(n.GetMemMib()) + "G"), text(strconv.Itoa(len(n.GetJobs()))),
		text(clean(strings.Join(n.GetPartitions(), ","))), text(clean(n.GetVersion())), text(nodeReason(n)),
	}
}

// nodeReason is why a node takes no jobs, or what is wrong with it.
func nodeReason(n *apiv1.Node) string {
	return clean(strings.Join(slices.DeleteFunc([]string{n.GetDrainReason(), admin.PowerFault(n), n.GetProblem()}, func(s string) bool { return s == "" }), "; "))
}
