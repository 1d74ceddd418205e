package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func newPartitionCmd(e *Env, c *client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "partition", Short: "List, set and remove partitions",
		Long: "A partition is a named part of the cluster with limits and a policy of its own. Nodes may belong\n" +
			"to several. Without any, the cluster is one.",
		Example: "  berth partition list\n  berth partition set gpu --nodes 'gpu[01-04]' --default --max-time 24h",
	}
	cmd.AddCommand(newPartitionListCmd(e, c), newPartitionShowCmd(e, c), newPartitionSetCmd(e, c), newPartitionRemoveCmd(e, c))
	return cmd
}

func newPartitionListCmd(e *Env, c *client) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list [NAME…]", Aliases: []string{"ls"}, Short: "List partitions; * marks the default one",
		Example: "  berth partition list\n  berth partition list -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPartitionList(cmd.Context(), e, c, format(output), args)
		},
	}
	addFormat(cmd, &output, formatTable, formatJSON, formatYAML, formatName)
	return cmd
}

func newPartitionShowCmd(e *Env, c *client) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "show NAME…", Short: "Show all about partitions",
		Example: "  berth partition show gpu",
		Args:    someArgs("partition"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPartitionShow(cmd.Context(), e, c, format(output), args)
		},
	}
	addFormat(cmd, &output, formatTable, formatJSON, formatYAML, formatName)
	return cmd
}

// getPartitions reads partitions by name, all when names is empty.
func getPartitions(ctx context.Context, c *client, names []string) ([]*apiv1.Partition, error) {
	for _, name := range names {
		if err := cluster.CheckPartitionName(name); err != nil {
			return nil, Usagef("%w", err)
		}
	}
	var parts []*apiv1.Partition
	err := c.cluster(ctx, reads, func(ctx context.Context, s apiv1.ClusterServiceClient) error {
		resp, err := s.ListPartitions(ctx, &apiv1.ListPartitionsRequest{Names: names})
		parts = resp.GetPartitions()
		return err
	})
	return parts, err
}

func runPartitionList(ctx context.Context, e *Env, c *client, f format, names []string) error {
	parts, err := getPartitions(ctx, c, names)
	if err != nil {
		return err
	}
	if done, err := printList(e, f, viewPartitions(parts)); done {
		return err
	}
	if f == formatName {
		for _, p := range parts {
			e.printf("%s\n", escape(p.GetName()))
		}
		return nil
	}
	if len(parts) == 0 {
		e.warnf("there are no partitions: every job may run on every node; berth partition set NAME --nodes LIST makes one")
		return nil
	}
	t := &table{cols: []column{
		{head: "PARTITION"}, {head: "STATE"}, {head: "TIMELIMIT", right: true}, {head: "NODES", right: true}, {head: "GPUS", right: true},
		{head: "RUNNING", right: true}, {head: "WAITING", right: true}, {head: "POLICY"}, {head: "NODELIST", shrink: true},
	}}
	for _, p := range parts {
		name := p.GetName()
		if p.GetDefault() {
			name += "*"
		}
		t.add(name, partitionState(p), limitText(p), fmt.Sprintf("%d/%d", p.GetNodesReady(), p.GetNodesTotal()),
			fmt.Sprintf("%d/%d", p.GetGpusUsed(), p.GetGpusTotal()), strconv.Itoa(int(p.GetJobsRunning())), strconv.Itoa(int(p.GetJobsWaiting())),
			orDash(p.GetPolicy()), p.GetNodes())
	}
	t.print(e)
	return nil
}

func partitionState(p *apiv1.Partition) string {
	if p.GetDown() {
		return "down"
	}
	return "up"
}

func limitText(p *apiv1.Partition) string {
	if p.GetMaxTime() == nil {
		return "none"
	}
	return units.FormatDuration(p.GetMaxTime().AsDuration())
}

func runPartitionShow(ctx context.Context, e *Env, c *client, f format, names []string) error {
	parts, err := getPartitions(ctx, c, names)
	if err != nil {
		return err
	}
	var v any = viewPartitions(parts)
	if len(parts) == 1 {
		v = viewPartitions(parts)[0]
	}
	if done, err := printList(e, f, v); done {
		return err
	}
	for i, p := range parts {
		if f == formatName {
			e.printf("%s\n", escape(p.GetName()))
			continue
		}
		if i > 0 {
			e.printf("\n")
		}
		standard := ""
		if p.GetDefault() {
			standard = "yes"
		}
		usual := limitText(p)
		if p.GetDefaultTime() != nil {
			usual = units.FormatDuration(p.GetDefaultTime().AsDuration())
		}
		keyValues(e, "",
			"Partition", p.GetName(),
			"State", partitionState(p),
			"Default", standard,
			"Nodes", p.GetNodes(),
			"GPU types", strings.Join(p.GetGpuTypes(), ", "),
			"Longest time", limitText(p),
			"Usual time", usual,
			"Networks", strings.Join(p.GetNetworks(), ", "),
			"Policy", p.GetPolicy(),
			"There now", fmt.Sprintf("%d of %s ready, %d of %s in use", p.GetNodesReady(), plural(int(p.GetNodesTotal()), "node", "nodes"),
				p.GetGpusUsed(), plural(int(p.GetGpusTotal()), "GPU", "GPUs")),
			"Jobs", fmt.Sprintf("%d running, %d waiting", p.GetJobsRunning(), p.GetJobsWaiting()),
		)
	}
	return nil
}

type partitionOptions struct {
	nodes, types, maxTime, defaultTime, state, networks string
	standard                                            bool
}

func newPartitionSetCmd(e *Env, c *client) *cobra.Command {
	var o partitionOptions
	cmd := &cobra.Command{
		Use: "set NAME [flags]", Short: "Make a partition, or change one",
		Long: "Make a partition, or change what is said of one; the rest stays. A new one needs --nodes. While a\n" +
			"partition is down nothing starts there: its jobs wait, and what runs goes on. Its policy stands in\n" +
			"scheduling.policies of the coordinators' configuration.",
		Example: "  berth partition set gpu --nodes 'gpu[01-04]' --default --max-time 24h\n" +
			"  berth partition set debug --nodes gpu01 --max-time 30m\n  berth partition set gpu --state down",
		Args: oneArg("partition"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := o.request(args[0], cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return runPartitionSet(cmd.Context(), e, c, req)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.nodes, "nodes", "", "its nodes, a host `LIST` such as gpu[01-04,07],n1, or ALL")
	fs.StringVar(&o.types, "gpu-types", "", "only cards of these types, a comma-separated `LIST`; \"\" for all")
	fs.BoolVar(&o.standard, "default", false, "jobs that name no partition go here; takes that from another")
	fs.StringVar(&o.maxTime, "max-time", "", "the most `TIME` that a job may ask for, or none")
	fs.StringVar(&o.defaultTime, "default-time", "", "`TIME` of a job that asks for none; none is --max-time")
	fs.StringVar(&o.networks, "networks", "", "what its jobs may see of the network, a comma-separated `LIST` of host and none, the first by default; \"\" leaves it to the nodes")
	fs.StringVar(&o.state, "state", "", "`STATE`, up or down")
	fs.SortFlags = false
	return cmd
}

// request is what the flags change.
func (o *partitionOptions) request(name string, said func(string) bool) (*apiv1.SetPartitionRequest, error) {
	if err := cluster.CheckPartitionName(name); err != nil {
		return nil, Usagef("%w", err)
	}
	req := &apiv1.SetPartitionRequest{Name: name}
	if said("nodes") {
		if _, err := cluster.ParseHostList(o.nodes); err != nil {
			return nil, Usagef("--%w", err)
		}
		req.Nodes = &o.nodes
	}
	if said("gpu-types") {
		req.SetGpuTypes = true
		for t := range strings.SplitSeq(o.types, ",") {
			if t = strings.TrimSpace(t); t != "" {
				req.GpuTypes = append(req.GpuTypes, t)
			}
		}
	}
	if said("networks") {
		req.SetNetworks = true
		for n := range strings.SplitSeq(o.networks, ",") {
			if n = strings.TrimSpace(n); n != "" {
				req.Networks = append(req.Networks, n)
			}
		}
	}
	if said("default") {
		req.Default = &o.standard
	}
	for _, t := range []struct {
		flag, text string
		to         **durationpb.Duration
	}{{"max-time", o.maxTime, &req.MaxTime}, {"default-time", o.defaultTime, &req.DefaultTime}} {
		if !said(t.flag) {
			continue
		}
		d, err := timeOrNone(t.text)
		if err != nil {
			return nil, Usagef("--%s: %w", t.flag, err)
		}
		*t.to = durationpb.New(d)
	}
	if said("state") {
		down := o.state == "down"
		if !down && o.state != "up" {
			return nil, Usagef("--state %s: want up or down", shortQuote(o.state))
		}
		req.Down = &down
	}
	return req, nil
}

func timeOrNone(text string) (time.Duration, error) {
	if text == "none" {
		return 0, nil
	}
	d, err := units.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%w; or none", err)
	}
	return d, nil
}

func runPartitionSet(ctx context.Context, e *Env, c *client, req *apiv1.SetPartitionRequest) error {
	var resp *apiv1.SetPartitionResponse
	err := c.cluster(ctx, changes, func(ctx context.Context, s apiv1.ClusterServiceClient) (err error) {
		resp, err = s.SetPartition(ctx, req)
		return err
	})
	if err != nil {
		return unknownChange(err, "Setting it again is safe.")
	}
	for _, w := range resp.GetWarnings() {
		e.warnf("warning: %s", escape(w))
	}
	p := resp.GetPartition()
	standard := ""
	if p.GetDefault() {
		standard = ", the default"
	}
	e.printf("partition %s: %s%s, %d of %s ready, %s\n", escape(p.GetName()), partitionState(p), standard,
		p.GetNodesReady(), plural(int(p.GetNodesTotal()), "node", "nodes"), plural(int(p.GetGpusTotal()), "GPU", "GPUs"))
	return nil
}

func newPartitionRemoveCmd(e *Env, c *client) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Forget a partition of which no job waits or runs",
		Example: "  berth partition remove debug",
		Args:    oneArg("partition"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPartitionRemove(cmd.Context(), e, c, args[0])
		},
	}
}

func runPartitionRemove(ctx context.Context, e *Env, c *client, name string) error {
	if err := cluster.CheckPartitionName(name); err != nil {
		return Usagef("%w", err)
	}
	err := c.cluster(ctx, changes, func(ctx context.Context, s apiv1.ClusterServiceClient) error {
		_, err := s.RemovePartition(ctx, &apiv1.RemovePartitionRequest{Name: name})
		return err
	})
	if err != nil {
		return unknownChange(err, "See whether it is still there: berth partition list")
	}
	e.printf("partition %s: removed\n", escape(name))
	return nil
}

type partitionView struct {
	Name     string   `json:"name"`
	State    string   `json:"state"`
	Default  bool     `json:"default"`
	Nodes    string   `json:"nodes"`
	GPUTypes []string `json:"gpu_types"`
	// 0 is no limit.
	MaxSeconds     float64 `json:"max_seconds"`
	DefaultSeconds float64 `json:"default_seconds"`
	Policy         string  `json:"policy"`
	// Networks is empty where the nodes decide.
	Networks    []string `json:"networks"`
	NodesTotal  uint32   `json:"nodes_total"`
	NodesReady  uint32   `json:"nodes_ready"`
	GPUsTotal   uint32   `json:"gpus_total"`
	GPUsUsed    uint32   `json:"gpus_used"`
	JobsRunning uint32   `json:"jobs_running"`
	JobsWaiting uint32   `json:"jobs_waiting"`
}

func viewPartitions(in []*apiv1.Partition) []partitionView {
	out := []partitionView{}
	for _, p := range in {
		out = append(out, partitionView{
			Name: p.GetName(), State: partitionState(p), Default: p.GetDefault(), Nodes: p.GetNodes(), GPUTypes: append([]string{}, p.GetGpuTypes()...),
			MaxSeconds: p.GetMaxTime().AsDuration().Seconds(), DefaultSeconds: p.GetDefaultTime().AsDuration().Seconds(), Policy: p.GetPolicy(),
			Networks: append([]string{}, p.GetNetworks()...), NodesTotal: p.GetNodesTotal(), NodesReady: p.GetNodesReady(), GPUsTotal: p.GetGpusTotal(), GPUsUsed: p.GetGpusUsed(),
			JobsRunning: p.GetJobsRunning(), JobsWaiting: p.GetJobsWaiting(),
		})
	}
	return out
}
