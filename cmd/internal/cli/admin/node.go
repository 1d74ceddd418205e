package admin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewNodeCmd returns the command node.
func NewNodeCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "node", Short: "List, drain, resume, power, fence and remove nodes",
		Example: "  berth node list\n  berth node drain n7 --reason 'GPU 2 reports ECC errors'",
	}
	cmd.AddCommand(newNodeListCmd(e, c), newNodeShowCmd(e, c), newNodeDrainCmd(e, c), newNodeResumeCmd(e, c),
		newNodePowerCmd(e, c, false), newNodePowerCmd(e, c, true), newNodeFenceCmd(e, c), newNodeRemoveCmd(e, c))
	return cmd
}

func newNodeListCmd(e *console.Env, c *client.Client) *cobra.Command {
	var output string
	shape := console.Shape{Narrow: true}
	cmd := &cobra.Command{
		Use: "list [NODE…]", Aliases: []string{"ls"}, Short: "List nodes; with -o wide, each GPU",
		Example: "  berth node list\n  berth node list -o wide\n  berth node list -o json n7",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodeList(cmd.Context(), e, c, console.Format(output), &shape, args)
		},
	}
	console.AddShape(cmd, &output, &shape, console.FormatTable, console.FormatWide, console.FormatJSON, console.FormatYAML, console.FormatName)
	return cmd
}

func newNodeShowCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "show NODE…", Short: "Show nodes in full",
		Example: "  berth node show n7",
		Args:    console.SomeArgs("node"),
	}, client.Bound(e, c, runNodeShow), console.FormatTable, console.FormatJSON, console.FormatYAML)
}

func runNodeList(ctx context.Context, e *console.Env, c *client.Client, f console.Format, shape *console.Shape, ids []string) error {
	nodes, err := client.GetNodes(ctx, c, ids)
	if nodes == nil && err != nil {
		return err
	}
	defer console.Page(e)()
	if done, perr := console.PrintList(e, f, view.Nodes(nodes)); done {
		if perr != nil {
			return perr
		}
		return err
	}
	t := nodeTable(e, nodes)
	switch f {
	case console.FormatName:
		for _, n := range nodes {
			e.Printf("%s\n", console.Escape(n.GetId()))
		}
		return err
	case console.FormatWide:
		t = gpuTable(nodes, client.Labels(ctx, c, jobsOn(nodes)), true)
	}
	if perr := shape.Print(e, t); perr != nil {
		return perr
	}
	return err
}

// imagesText returns "" for none: most nodes have no containerd, or no pulled images.
func imagesText(n uint32) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d held", n)
}

// dataText lists the data sets among a node's features.
func dataText(features []string) string {
	var names []string
	for _, f := range features {
		if name, ok := strings.CutPrefix(f, cluster.DataFeature); ok {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// NodeState returns the state, including an administrator's changes.
func NodeState(n *apiv1.Node) string {
	switch {
	case !n.GetDrain() && n.GetMaint() && n.GetState() == cluster.NodeReady.String():
		return "maint"
	case !n.GetDrain():
		return n.GetState()
	case n.GetState() != cluster.NodeReady.String():
		return n.GetState() + "+drain"
	case len(n.GetJobs()) > 0:
		return "draining"
	default:
		return "drained"
	}
}

func nodeTable(e *console.Env, nodes []*apiv1.Node) *console.Table {
	t := &console.Table{Cols: []console.Column{
		{Head: "NODE"}, {Head: "STATE", Paint: console.HealthColour}, {Head: "GPUS", Right: true}, {Head: "TYPE", Shrink: true, Drop: 2}, {Head: "GPU_MEM", Right: true, Drop: 3},
		{Head: "GPU_USE", Right: true, Drop: 4}, {Head: "CPUS", Right: true, Drop: 5}, {Head: "MEMORY", Right: true, Drop: 6}, {Head: "JOBS", Right: true}, {Head: "REASON", Shrink: true, Drop: 1},
	}}
	parted := slices.ContainsFunc(nodes, func(n *apiv1.Node) bool { return len(n.GetPartitions()) > 0 })
	if parted {
		t.Cols = slices.Insert(t.Cols, 2, console.Column{Head: "PARTITIONS", Shrink: true})
	}
	for _, n := range nodes {
		var used, sellable, milli int64
		var types []string
		for _, g := range n.GetGpus() {
			used += g.GetLedgerUsedMib()
			sellable += g.GetSellableMib()
			milli += g.GetLedgerUsedMilli()
			if !slices.Contains(types, g.GetType()) {
				types = append(types, g.GetType())
			}
		}
		use := "-"
		if k := int64(len(n.GetGpus())); k > 0 {
			use = console.PercentOf(milli / k)
		}
		row := []string{n.GetId(), NodeState(n)}
		if parted {
			row = append(row, console.OrDash(strings.Join(n.GetPartitions(), ",")))
		}
		t.Add(append(row, strconv.Itoa(len(n.GetGpus())), console.OrDash(strings.Join(types, ",")), usedOf(used, sellable), use,
			console.Cores(n.GetCpuUsedMilli())+"/"+console.Cores(n.GetCpuMilli()), usedOf(n.GetMemUsedMib(), n.GetMemMib()),
			strconv.Itoa(len(n.GetJobs())), console.OrDash(nodeReason(e, n)))...)
	}
	return t
}

// usedOf formats "11.2/79.0G" in GiB.
func usedOf(used, total int64) string {
	if total == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f/%.1fG", float64(used)/1024, float64(total)/1024)
}

func gpuTable(nodes []*apiv1.Node, label func([]uint64) string, withNode bool) *console.Table {
	t := &console.Table{}
	if withNode {
		t.Cols = append(t.Cols, console.Column{Head: "NODE"}, console.Column{Head: "STATE"})
	}
	t.Cols = append(t.Cols, console.Column{Head: "GPU", Right: true}, console.Column{Head: "TYPE", Shrink: true}, console.Column{Head: "GIVEN", Right: true},
		console.Column{Head: "COMPUTE", Right: true}, console.Column{Head: "SHARES", Right: true}, console.Column{Head: "MEASURED", Right: true}, console.Column{Head: "BUSY", Right: true},
		console.Column{Head: "CAP"}, console.Column{Head: "HEALTH"}, console.Column{Head: "QUEUED", Right: true}, console.Column{Head: "JOBS", Shrink: true})
	for _, n := range nodes {
		for _, g := range n.GetGpus() {
			var row []string
			if withNode {
				row = append(row, n.GetId(), NodeState(n))
			}
			shares := fmt.Sprintf("%d/%d", g.GetShares(), g.GetMaxShares())
			if g.GetExclusive() {
				shares = "whole"
			}
			t.Add(append(row, strconv.Itoa(int(g.GetIndex())), g.GetType(), usedOf(g.GetLedgerUsedMib(), g.GetSellableMib()),
				console.PercentOf(g.GetLedgerUsedMilli()), shares, measuredMem(g), measuredUse(g), view.CapText(g), GpuHealth(g),
				strconv.Itoa(int(g.GetQueued())), console.OrDash(label(g.GetJobs())))...)
		}
	}
	return t
}

func measuredMem(g *apiv1.GPU) string {
	if g.GetMeasuredUsedMib() < 0 {
		return "-"
	}
	return units.HumanMiB(g.GetMeasuredUsedMib())
}

func measuredUse(g *apiv1.GPU) string {
	if g.GetMeasuredUtilMilli() < 0 {
		return "-"
	}
	return console.PercentOf(g.GetMeasuredUtilMilli())
}

func runNodeShow(ctx context.Context, e *console.Env, c *client.Client, f console.Format, ids []string) error {
	nodes, err := client.GetNodes(ctx, c, ids)
	if nodes == nil && err != nil {
		return err
	}
	if done, perr := console.PrintList(e, f, view.Nodes(nodes)); done {
		if perr != nil {
			return perr
		}
		return err
	}
	label := client.Labels(ctx, c, jobsOn(nodes))
	for i, n := range nodes {
		if i > 0 {
			e.Printf("\n")
		}
		console.KeyValues(e, "",
			"Node", n.GetId(),
			"State", NodeState(n),
			"Reason", n.GetDrainReason(),
			"Drains from", console.When(e, n.GetDrainFrom()),
			"Drained until", console.When(e, n.GetDrainUntil()),
			"Power", nodePowerText(e, n),
			"Cut off", n.GetCutOff(),
			"Problem", n.GetProblem(),
			"Partitions", strings.Join(n.GetPartitions(), ", "),
			"Address", n.GetAddress(),
			"Cores", console.Cores(n.GetCpuUsedMilli())+" of "+console.Cores(n.GetCpuMilli())+" given away",
			"Memory", usedOf(n.GetMemUsedMib(), n.GetMemMib())+" given away",
			"Runtimes", strings.Join(n.GetRuntimes(), ", "),
			"Images", imagesText(n.GetImages()),
			"Data", dataText(n.GetFeatures()),
			"Version", n.GetVersion(),
			"Boot", n.GetBootId(),
			"Gossip", n.GetGossip(),
			"Gossip heard", console.When(e, n.GetGossipHeard()),
			"Registered", console.When(e, n.GetRegistered()),
			"Last contact", console.When(e, n.GetLastContact()),
			"Jobs", label(n.GetJobs()),
		)
		if len(n.GetGpus()) > 0 {
			e.Printf("\n")
			gpuTable([]*apiv1.Node{n}, label, false).Print(e)
			view.PrintCaps(e, n)
		}
		view.ShowDetail(e, n)
		showHealth(e, n)
	}
	return err
}

func newNodeResumeCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "resume NODE", Short: "Return a drained node to service",
		Example: "  berth node resume n7",
		Args:    console.OneArg("node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodeResume(cmd.Context(), e, c, args[0])
		},
	}
}

func runNodeResume(ctx context.Context, e *console.Env, c *client.Client, id string) error {
	if err := cluster.CheckName("node", id); err != nil {
		return console.Usagef("%w", err)
	}
	resp, err := client.ResumeNode.Ask(ctx, c, client.Changes, &apiv1.ResumeNodeRequest{Id: id})
	if err != nil {
		return console.UnknownChange(err, "Repeating this is safe.")
	}
	node := resp.GetNode()
	e.Printf("node %s: %s\n", console.Escape(id), NodeState(node))
	return nil
}
