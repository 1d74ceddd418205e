package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func newNodeCmd(e *Env, c *client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "node", Short: "List, drain, resume, fence and remove nodes",
		Example: "  berth node list\n  berth node drain n7 --reason 'GPU 2 reports ECC errors'",
	}
	cmd.AddCommand(newNodeListCmd(e, c), newNodeShowCmd(e, c), newNodeDrainCmd(e, c), newNodeResumeCmd(e, c),
		newNodeFenceCmd(e, c), newNodeRemoveCmd(e, c))
	return cmd
}

func newNodeListCmd(e *Env, c *client) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list [NODE…]", Aliases: []string{"ls"}, Short: "List nodes; with -o wide, each GPU",
		Example: "  berth node list\n  berth node list -o wide\n  berth node list -o json n7",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodeList(cmd.Context(), e, c, format(output), args)
		},
	}
	addFormat(cmd, &output, formatTable, formatWide, formatJSON, formatYAML, formatName)
	return cmd
}

func newNodeShowCmd(e *Env, c *client) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "show NODE…", Short: "Show all about nodes",
		Example: "  berth node show n7",
		Args:    someArgs("node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodeShow(cmd.Context(), e, c, format(output), args)
		},
	}
	addFormat(cmd, &output, formatTable, formatJSON, formatYAML)
	return cmd
}

func runNodeList(ctx context.Context, e *Env, c *client, f format, ids []string) error {
	nodes, err := getNodes(ctx, c, ids)
	if nodes == nil && err != nil {
		return err
	}
	if done, perr := printList(e, f, viewNodes(nodes)); done {
		if perr != nil {
			return perr
		}
		return err
	}
	switch f {
	case formatName:
		for _, n := range nodes {
			e.printf("%s\n", escape(n.GetId()))
		}
	case formatWide:
		gpuTable(nodes, true).print(e)
	default:
		nodeTable(nodes).print(e)
	}
	return err
}

// nodeState is the state with what an administrator made of it.
func nodeState(n *apiv1.Node) string {
	switch {
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

func nodeTable(nodes []*apiv1.Node) *table {
	t := &table{cols: []column{
		{head: "NODE"}, {head: "STATE"}, {head: "GPUS", right: true}, {head: "TYPE", shrink: true}, {head: "GPU_MEM", right: true},
		{head: "GPU_USE", right: true}, {head: "CPUS", right: true}, {head: "MEMORY", right: true}, {head: "JOBS", right: true}, {head: "REASON", shrink: true},
	}}
	parted := slices.ContainsFunc(nodes, func(n *apiv1.Node) bool { return len(n.GetPartitions()) > 0 })
	if parted {
		t.cols = slices.Insert(t.cols, 2, column{head: "PARTITIONS", shrink: true})
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
			use = percentOf(milli / k)
		}
		row := []string{n.GetId(), nodeState(n)}
		if parted {
			row = append(row, orDash(strings.Join(n.GetPartitions(), ",")))
		}
		t.add(append(row, strconv.Itoa(len(n.GetGpus())), orDash(strings.Join(types, ",")), usedOf(used, sellable), use,
			cores(n.GetCpuUsedMilli())+"/"+cores(n.GetCpuMilli()), usedOf(n.GetMemUsedMib(), n.GetMemMib()),
			strconv.Itoa(len(n.GetJobs())), orDash(nodeReason(n)))...)
	}
	return t
}

// usedOf writes "11.2/79.0G" in GiB.
func usedOf(used, total int64) string {
	if total == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f/%.1fG", float64(used)/1024, float64(total)/1024)
}

func gpuTable(nodes []*apiv1.Node, withNode bool) *table {
	t := &table{}
	if withNode {
		t.cols = append(t.cols, column{head: "NODE"}, column{head: "STATE"})
	}
	t.cols = append(t.cols, column{head: "GPU", right: true}, column{head: "TYPE", shrink: true}, column{head: "GIVEN", right: true},
		column{head: "COMPUTE", right: true}, column{head: "SHARES", right: true}, column{head: "MEASURED", right: true}, column{head: "BUSY", right: true},
		column{head: "CAP"}, column{head: "HEALTH"}, column{head: "QUEUED", right: true}, column{head: "JOBS", shrink: true})
	for _, n := range nodes {
		for _, g := range n.GetGpus() {
			var row []string
			if withNode {
				row = append(row, n.GetId(), nodeState(n))
			}
			shares := fmt.Sprintf("%d/%d", g.GetShares(), g.GetMaxShares())
			if g.GetExclusive() {
				shares = "whole"
			}
			t.add(append(row, strconv.Itoa(int(g.GetIndex())), g.GetType(), usedOf(g.GetLedgerUsedMib(), g.GetSellableMib()),
				percentOf(g.GetLedgerUsedMilli()), shares, measuredMem(g), measuredUse(g), capText(g), gpuHealth(g),
				strconv.Itoa(int(g.GetQueued())), orDash(idList(g.GetJobs())))...)
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
	return percentOf(g.GetMeasuredUtilMilli())
}

func runNodeShow(ctx context.Context, e *Env, c *client, f format, ids []string) error {
	nodes, err := getNodes(ctx, c, ids)
	if nodes == nil && err != nil {
		return err
	}
	if done, perr := printList(e, f, viewNodes(nodes)); done {
		if perr != nil {
			return perr
		}
		return err
	}
	for i, n := range nodes {
		if i > 0 {
			e.printf("\n")
		}
		keyValues(e, "",
			"Node", n.GetId(),
			"State", nodeState(n),
			"Reason", n.GetDrainReason(),
			"Problem", n.GetProblem(),
			"Partitions", strings.Join(n.GetPartitions(), ", "),
			"Address", n.GetAddress(),
			"Cores", cores(n.GetCpuUsedMilli())+" of "+cores(n.GetCpuMilli())+" given away",
			"Memory", usedOf(n.GetMemUsedMib(), n.GetMemMib())+" given away",
			"Runtimes", strings.Join(n.GetRuntimes(), ", "),
			"Version", n.GetVersion(),
			"Boot", n.GetBootId(),
			"Gossip", n.GetGossip(),
			"Registered", when(e, n.GetRegistered()),
			"Last contact", when(e, n.GetLastContact()),
			"Jobs", idList(n.GetJobs()),
		)
		if len(n.GetGpus()) > 0 {
			e.printf("\n")
			gpuTable([]*apiv1.Node{n}, false).print(e)
			printCaps(e, n)
		}
		showDetail(e, n)
		showHealth(e, n)
	}
	return err
}

func newNodeDrainCmd(e *Env, c *client) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "drain NODE --reason TEXT", Short: "Start no more jobs on a node; those that run go on",
		Example: "  berth node drain n7 --reason 'GPU 2 reports ECC errors'",
		Args:    oneArg("node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodeDrain(cmd.Context(), e, c, args[0], reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that others will see; required")
	return cmd
}

func runNodeDrain(ctx context.Context, e *Env, c *client, id, reason string) error {
	if err := cluster.CheckName("node", id); err != nil {
		return Usagef("%w", err)
	}
	if err := checkReason(reason, "the node"); err != nil {
		return err
	}
	var node *apiv1.Node
	err := c.cluster(ctx, changes, func(ctx context.Context, s apiv1.ClusterServiceClient) error {
		resp, err := s.DrainNode(ctx, &apiv1.DrainNodeRequest{Id: id, Reason: reason})
		node = resp.GetNode()
		return err
	})
	if err != nil {
		return unknownChange(err, "Draining again is safe.")
	}
	e.printf("node %s: %s, %s on it\n", escape(id), nodeState(node), plural(len(node.GetJobs()), "job", "jobs"))
	return nil
}

func newNodeResumeCmd(e *Env, c *client) *cobra.Command {
	return &cobra.Command{
		Use: "resume NODE", Short: "Start jobs on a drained node again",
		Example: "  berth node resume n7",
		Args:    oneArg("node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodeResume(cmd.Context(), e, c, args[0])
		},
	}
}

func runNodeResume(ctx context.Context, e *Env, c *client, id string) error {
	if err := cluster.CheckName("node", id); err != nil {
		return Usagef("%w", err)
	}
	var node *apiv1.Node
	err := c.cluster(ctx, changes, func(ctx context.Context, s apiv1.ClusterServiceClient) error {
		resp, err := s.ResumeNode(ctx, &apiv1.ResumeNodeRequest{Id: id})
		node = resp.GetNode()
		return err
	})
	if err != nil {
		return unknownChange(err, "Resuming again is safe.")
	}
	e.printf("node %s: %s\n", escape(id), nodeState(node))
	return nil
}
