package admin

import (
	"cmp"
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

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewGPUCmd returns the command gpu.
func NewGPUCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "gpu", Short: "List, drain and resume single GPUs, and find idle ones",
		Example: "  berth gpu list\n  berth gpu drain n7/2 --reason 'ECC errors'\n  berth gpu resume n7/2",
	}
	cmd.AddCommand(newGPUListCmd(e, c), newGPUDrainCmd(e, c), newGPUResumeCmd(e, c), newGPUIdleCmd(e, c), newGPUSharingCmd(e, c))
	return cmd
}

func newGPUListCmd(e *console.Env, c *client.Client) *cobra.Command {
	var output string
	var shape console.Shape
	cmd := &cobra.Command{
		Use: "list [NODE…]", Aliases: []string{"ls"}, Short: "List GPUs and their health",
		Example: "  berth gpu list\n  berth gpu list n7\n  berth gpu list -o name",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runGPUList(cmd.Context(), e, c, console.Format(output), &shape, args)
		},
	}
	console.AddShape(cmd, &output, &shape, console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
	return cmd
}

// gpuListView is one GPU with its node.
type gpuListView struct {
	Node string `json:"node"`
	view.GpuView
}

func runGPUList(ctx context.Context, e *console.Env, c *client.Client, f console.Format, shape *console.Shape, ids []string) error {
	nodes, err := client.GetNodes(ctx, c, ids)
	if nodes == nil && err != nil {
		return err
	}
	defer console.Page(e)()
	views := []gpuListView{}
	for _, n := range view.Nodes(nodes) {
		for _, g := range n.GPUs {
			views = append(views, gpuListView{Node: n.ID, GpuView: g})
		}
	}
	if done, perr := console.PrintRows(e, f, views, func(v gpuListView) string { return v.UUID }); done {
		return cmp.Or(perr, err)
	}
	t := &console.Table{Cols: []console.Column{
		{Head: "GPU"}, {Head: "HEALTH", Paint: console.HealthColour}, {Head: "TYPE", Shrink: true, Drop: 3}, {Head: "GIVEN", Right: true, Drop: 1}, {Head: "SHARES", Right: true, Drop: 4},
		{Head: "JOBS", Shrink: true}, {Head: "UUID", Drop: 5}, {Head: "REASON", Shrink: true, Drop: 2},
	}}
	label := client.Labels(ctx, c, jobsOn(nodes))
	for _, n := range nodes {
		for _, g := range n.GetGpus() {
			t.Add(n.GetId()+"/"+strconv.Itoa(int(g.GetIndex())), healthOn(n, g), g.GetType(), usedOf(g.GetLedgerUsedMib(), g.GetSellableMib()),
				fmt.Sprintf("%d/%d", g.GetShares(), g.GetMaxShares()), console.OrDash(label(g.GetJobs())), g.GetUuid(), console.OrDash(reasonOn(n, g)))
		}
	}
	if perr := shape.Print(e, t); perr != nil {
		return perr
	}
	return err
}

// jobsOn returns the jobs on the nodes, each once.
func jobsOn(nodes []*apiv1.Node) []uint64 {
	var ids []uint64
	for _, n := range nodes {
		ids = append(ids, n.GetJobs()...)
		for _, g := range n.GetGpus() {
			ids = append(ids, g.GetJobs()...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// healthOn returns GpuHealth, or what keeps jobs off the whole node if
// nothing is wrong with the GPU.
func healthOn(n *apiv1.Node, g *apiv1.GPU) string {
	health, state := GpuHealth(g), NodeState(n)
	if health == cluster.GPUOK.String() && state != cluster.NodeReady.String() {
		return "node " + state
	}
	return health
}

func reasonOn(n *apiv1.Node, g *apiv1.GPU) string {
	why := gpuReason(g)
	if why == "" && n.GetDrain() {
		return n.GetDrainReason()
	}
	return why
}

// GpuHealth returns the state, including an administrator's changes.
func GpuHealth(g *apiv1.GPU) string {
	state := g.GetState()
	if state == "" { // from a coordinator that does not report it
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

// gpuReason says why a GPU takes no jobs, or none that share it; "" if it does.
func gpuReason(g *apiv1.GPU) string {
	var why []string
	for _, s := range []string{g.GetStateReason(), g.GetDrainReason(), g.GetSharingOff()} {
		if s != "" {
			why = append(why, s)
		}
	}
	return strings.Join(why, "; ")
}

// CutOff describes a node that the leader has lost contact with while
// others have not; "" for any other.
func CutOff(n *apiv1.Node) string {
	if n.GetCutOff() == "" {
		return ""
	}
	return "cut off: " + n.GetCutOff()
}

// nodeReason says what is wrong with a node, "" if nothing is.
func nodeReason(e *console.Env, n *apiv1.Node) string {
	var why []string
	drain := n.GetDrainReason()
	if until := console.When(e, n.GetDrainUntil()); until != "" {
		drain += ", until " + until
		if from := n.GetDrainFrom(); from.IsValid() && from.AsTime().After(e.Now()) {
			drain = "drains from " + console.When(e, from) + " until " + until + ": " + n.GetDrainReason()
		}
	}
	for _, s := range []string{CutOff(n), drain, PowerFault(n), n.GetProblem()} {
		if s != "" {
			why = append(why, s)
		}
	}
	for _, g := range n.GetGpus() {
		if h := GpuHealth(g); h != cluster.GPUOK.String() {
			why = append(why, fmt.Sprintf("GPU %d %s", g.GetIndex(), h))
		}
	}
	return strings.Join(why, "; ")
}

// showHealth prints why GPUs take no jobs, and the node's events.
func showHealth(e *console.Env, n *apiv1.Node) {
	for _, g := range n.GetGpus() {
		if why := gpuReason(g); why != "" {
			e.Printf("GPU %d is %s: %s\n", g.GetIndex(), GpuHealth(g), console.Escape(why))
		}
	}
	if len(n.GetHistory()) == 0 {
		return
	}
	e.Printf("\n")
	t := &console.Table{Cols: []console.Column{{Head: "WHEN"}, {Head: "WHAT"}, {Head: "EVENT"}, {Head: "BY", Right: true}, {Head: "DETAIL", Shrink: true}}}
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
		t.Add(console.When(e, h.GetAt()), what, h.GetKind(), by, console.OrDash(h.GetDetail()))
	}
	t.Print(e)
}

// ParseGPU reads NODE/INDEX, or a UUID.
func ParseGPU(arg string) (node string, index *uint32, uuid string, err error) {
	node, num, ok := strings.Cut(arg, "/")
	if !ok {
		if !strings.HasPrefix(arg, "GPU-") || len(arg) > 128 || console.Escape(arg) != arg {
			return "", nil, "", console.Usagef("GPU %.32q: want NODE/INDEX such as n7/2, or a UUID that begins with GPU-; berth gpu list shows both", arg)
		}
		return "", nil, arg, nil
	}
	if err := cluster.CheckName("node", node); err != nil {
		return "", nil, "", console.Usagef("%w", err)
	}
	n, perr := strconv.ParseUint(num, 10, 8)
	if perr != nil {
		return "", nil, "", console.Usagef("GPU %.32q: %.32q is not a GPU index; want NODE/INDEX such as n7/2", arg, num)
	}
	return node, new(uint32(n)), "", nil
}

func newGPUDrainCmd(e *console.Env, c *client.Client) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "drain NODE/INDEX|UUID --reason TEXT", Short: "Drain one GPU: start no more jobs, let running ones finish",
		Long: "Start no more jobs on one GPU. Jobs running on it continue, and the node's other GPUs take jobs as before.\n" +
			"The drain lasts until berth gpu resume, even if the node reboots or the GPU disappears for a while.",
		Example: "  berth gpu drain n7/2 --reason 'ECC errors, to be swapped on Monday'",
		Args:    console.OneArg("GPU"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runGPUDrain(cmd.Context(), e, c, args[0], reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` shown to others (required)")
	return cmd
}

func runGPUDrain(ctx context.Context, e *console.Env, c *client.Client, arg, reason string) error {
	node, index, uuid, err := ParseGPU(arg)
	if err != nil {
		return err
	}
	if err := checkReason(reason, "the GPU"); err != nil {
		return err
	}
	resp, err := client.DrainGPU.Ask(ctx, c, client.Changes, &apiv1.DrainGPURequest{Gpu: uuid, Node: node, Index: index, Reason: reason})
	if err != nil {
		return console.UnknownChange(err, "Repeating this is safe.")
	}
	printGPU(e, resp.GetNode(), resp.GetGpu())
	return nil
}

// checkReason requires a text that explains a drain to others.
func checkReason(reason, what string) error {
	if strings.TrimSpace(reason) == "" || len(reason) > 256 || console.Escape(reason) != reason {
		return console.Usagef("--reason: want 1 to 256 bytes of printable text that tells others why %s is drained", what)
	}
	return nil
}

func printGPU(e *console.Env, n *apiv1.Node, uuid string) {
	for _, g := range n.GetGpus() {
		if g.GetUuid() == uuid {
			e.Printf("GPU %s/%d: %s, %s on it\n", console.Escape(n.GetId()), g.GetIndex(), GpuHealth(g), console.Plural(len(g.GetJobs()), "job", "jobs"))
			if why := g.GetStateReason(); why != "" && !g.GetDrain() {
				e.Printf("Its node still holds against it: %s\n", console.Escape(why))
			}
			return
		}
	}
	e.Printf("GPU %s of node %s: noted; the node does not report it now\n", console.Escape(uuid), console.Escape(n.GetId()))
}

func newGPUResumeCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "resume NODE/INDEX|UUID", Short: "Return a drained or failing GPU to service",
		Long: "Return a GPU to service: this ends a drain and clears a fault the node holds against it, such as an\n" +
			"Xid. Faults that persist, such as missing memory or a driver that does not answer, are detected again.",
		Example: "  berth gpu resume n7/2",
		Args:    console.OneArg("GPU"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runGPUResume(cmd.Context(), e, c, args[0])
		},
	}
}

func runGPUResume(ctx context.Context, e *console.Env, c *client.Client, arg string) error {
	node, index, uuid, err := ParseGPU(arg)
	if err != nil {
		return err
	}
	resp, err := client.ResumeGPU.Ask(ctx, c, client.Changes, &apiv1.ResumeGPURequest{Gpu: uuid, Node: node, Index: index})
	if err != nil {
		return console.UnknownChange(err, "Repeating this is safe.")
	}
	printGPU(e, resp.GetNode(), resp.GetGpu())
	return nil
}
