package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func newGPUCmd(e *Env, c *client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "gpu", Short: "List, drain and resume single GPUs",
		Example: "  berth gpu list\n  berth gpu drain n7/2 --reason 'ECC errors'\n  berth gpu resume n7/2",
	}
	cmd.AddCommand(newGPUListCmd(e, c), newGPUDrainCmd(e, c), newGPUResumeCmd(e, c))
	return cmd
}

func newGPUListCmd(e *Env, c *client) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list [NODE…]", Aliases: []string{"ls"}, Short: "List GPUs and their health",
		Example: "  berth gpu list\n  berth gpu list n7\n  berth gpu list -o name",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runGPUList(cmd.Context(), e, c, format(output), args)
		},
	}
	addFormat(cmd, &output, formatTable, formatJSON, formatYAML, formatName)
	return cmd
}

// gpuListView is one GPU with the node that it is on.
type gpuListView struct {
	Node string `json:"node"`
	gpuView
}

func runGPUList(ctx context.Context, e *Env, c *client, f format, ids []string) error {
	nodes, err := getNodes(ctx, c, ids)
	if nodes == nil && err != nil {
		return err
	}
	views := []gpuListView{}
	for _, n := range viewNodes(nodes) {
		for _, g := range n.GPUs {
			views = append(views, gpuListView{Node: n.ID, gpuView: g})
		}
	}
	if done, perr := printList(e, f, views); done {
		if perr != nil {
			return perr
		}
		return err
	}
	if f == formatName {
		for _, v := range views {
			e.printf("%s\n", escape(v.UUID))
		}
		return err
	}
	t := &table{cols: []column{
		{head: "GPU"}, {head: "HEALTH"}, {head: "TYPE", shrink: true}, {head: "GIVEN", right: true}, {head: "SHARES", right: true},
		{head: "JOBS", shrink: true}, {head: "UUID"}, {head: "REASON", shrink: true},
	}}
	for _, n := range nodes {
		for _, g := range n.GetGpus() {
			t.add(n.GetId()+"/"+strconv.Itoa(int(g.GetIndex())), gpuHealth(g), g.GetType(), usedOf(g.GetLedgerUsedMib(), g.GetSellableMib()),
				fmt.Sprintf("%d/%d", g.GetShares(), g.GetMaxShares()), orDash(idList(g.GetJobs())), g.GetUuid(), orDash(gpuReason(g)))
		}
	}
	t.print(e)
	return err
}

// gpuHealth is the state with what an administrator made of it.
func gpuHealth(g *apiv1.GPU) string {
	state := g.GetState()
	if state == "" { // of a coordinator that does not tell
		state = cluster.GPUOK.String()
	}
	switch {
	case !g.GetDrain():
		return state
	case state != cluster.GPUOK.String():
		return state + "+drain"
	case g.GetShares() > 0:
		return "draining"
	default:
		return "drained"
	}
}

// gpuReason says why a GPU takes no jobs, "" when it does.
func gpuReason(g *apiv1.GPU) string {
	var why []string
	for _, s := range []string{g.GetStateReason(), g.GetDrainReason()} {
		if s != "" {
			why = append(why, s)
		}
	}
	return strings.Join(why, "; ")
}

// nodeReason says what is wrong with a node, "" when nothing is.
func nodeReason(n *apiv1.Node) string {
	var why []string
	for _, s := range []string{n.GetDrainReason(), n.GetProblem()} {
		if s != "" {
			why = append(why, s)
		}
	}
	for _, g := range n.GetGpus() {
		if h := gpuHealth(g); h != cluster.GPUOK.String() {
			why = append(why, fmt.Sprintf("GPU %d %s", g.GetIndex(), h))
		}
	}
	return strings.Join(why, "; ")
}

// showHealth prints why GPUs take no jobs, and what befell the node.
func showHealth(e *Env, n *apiv1.Node) {
	for _, g := range n.GetGpus() {
		if why := gpuReason(g); why != "" {
			e.printf("GPU %d is %s: %s\n", g.GetIndex(), gpuHealth(g), escape(why))
		}
	}
	if len(n.GetHistory()) == 0 {
		return
	}
	e.printf("\n")
	t := &table{cols: []column{{head: "WHEN"}, {head: "WHAT"}, {head: "EVENT"}, {head: "BY", right: true}, {head: "DETAIL", shrink: true}}}
	for _, h := range n.GetHistory() {
		what, by := "node", "-"
		switch {
		case h.Index != nil:
			what = "GPU " + strconv.Itoa(int(h.GetIndex()))
		case h.GetGpu() != "":
			what = h.GetGpu()
		}
		if h.ByUid != nil {
			by = "uid " + strconv.FormatUint(uint64(h.GetByUid()), 10)
		}
		t.add(when(e, h.GetAt()), what, h.GetKind(), by, orDash(h.GetDetail()))
	}
	t.print(e)
}

// parseGPU reads NODE/INDEX, or a UUID.
func parseGPU(arg string) (node string, index *uint32, uuid string, err error) {
	node, num, ok := strings.Cut(arg, "/")
	if !ok {
		if !strings.HasPrefix(arg, "GPU-") || len(arg) > 128 || escape(arg) != arg {
			return "", nil, "", Usagef("GPU %.32q: want NODE/INDEX such as n7/2, or a UUID that begins with GPU-; berth gpu list shows both", arg)
		}
		return "", nil, arg, nil
	}
	if err := cluster.CheckName("node", node); err != nil {
		return "", nil, "", Usagef("%w", err)
	}
	n, perr := strconv.ParseUint(num, 10, 8)
	if perr != nil {
		return "", nil, "", Usagef("GPU %.32q: %.32q is no index of a GPU; want NODE/INDEX such as n7/2", arg, num)
	}
	i := uint32(n)
	return node, &i, "", nil
}

func newGPUDrainCmd(e *Env, c *client) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "drain NODE/INDEX|UUID --reason TEXT", Short: "Start no more jobs on one GPU; those that run go on",
		Long: "Start no more jobs on one GPU. Those that run on it go on, and the other GPUs of its node take jobs as before.\n" +
			"It stays so, also when the node boots again or the GPU is out for a while, until berth gpu resume.",
		Example: "  berth gpu drain n7/2 --reason 'ECC errors, to be swapped on Monday'",
		Args:    oneArg("GPU"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runGPUDrain(cmd.Context(), e, c, args[0], reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that others will see; required")
	return cmd
}

func runGPUDrain(ctx context.Context, e *Env, c *client, arg, reason string) error {
	node, index, uuid, err := parseGPU(arg)
	if err != nil {
		return err
	}
	if err := checkReason(reason, "the GPU"); err != nil {
		return err
	}
	var resp *apiv1.DrainGPUResponse
	err = c.cluster(ctx, changes, func(ctx context.Context, s apiv1.ClusterServiceClient) error {
		var err error
		resp, err = s.DrainGPU(ctx, &apiv1.DrainGPURequest{Gpu: uuid, Node: node, Index: index, Reason: reason})
		return err
	})
	if err != nil {
		return unknownChange(err, "Draining again is safe.")
	}
	printGPU(e, resp.GetNode(), resp.GetGpu())
	return nil
}

// checkReason wants a text that tells whoever finds what why it is drained.
func checkReason(reason, what string) error {
	if strings.TrimSpace(reason) == "" || len(reason) > 256 || escape(reason) != reason {
		return Usagef("--reason: want 1 to 256 bytes of printable text that says why, for whoever finds %s drained", what)
	}
	return nil
}

func printGPU(e *Env, n *apiv1.Node, uuid string) {
	for _, g := range n.GetGpus() {
		if g.GetUuid() == uuid {
			e.printf("GPU %s/%d: %s, %s on it\n", escape(n.GetId()), g.GetIndex(), gpuHealth(g), plural(len(g.GetJobs()), "job", "jobs"))
			if why := g.GetStateReason(); why != "" && !g.GetDrain() {
				e.printf("Its node still holds against it: %s\n", escape(why))
			}
			return
		}
	}
	e.printf("GPU %s of node %s: noted; the node does not report it now\n", escape(uuid), escape(n.GetId()))
}

func newGPUResumeCmd(e *Env, c *client) *cobra.Command {
	return &cobra.Command{
		Use: "resume NODE/INDEX|UUID", Short: "Start jobs on a drained or failing GPU again",
		Long: "Start jobs on a GPU again: a drain ends, and a fault that its node holds against it, such as an Xid, is\n" +
			"forgotten. What still is so is found again: memory that is not back, a driver that does not answer.",
		Example: "  berth gpu resume n7/2",
		Args:    oneArg("GPU"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runGPUResume(cmd.Context(), e, c, args[0])
		},
	}
}

func runGPUResume(ctx context.Context, e *Env, c *client, arg string) error {
	node, index, uuid, err := parseGPU(arg)
	if err != nil {
		return err
	}
	var resp *apiv1.ResumeGPUResponse
	err = c.cluster(ctx, changes, func(ctx context.Context, s apiv1.ClusterServiceClient) error {
		var err error
		resp, err = s.ResumeGPU(ctx, &apiv1.ResumeGPURequest{Gpu: uuid, Node: node, Index: index})
		return err
	})
	if err != nil {
		return unknownChange(err, "Resuming again is safe.")
	}
	printGPU(e, resp.GetNode(), resp.GetGpu())
	return nil
}
