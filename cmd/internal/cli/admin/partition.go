package admin

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewPartitionCmd returns the command partition.
func NewPartitionCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "partition", Short: "List, set and remove partitions",
		Long: "A partition is a named set of nodes with limits and a policy of its own. Nodes may belong to several.\n" +
			"With no partitions defined, the cluster acts as one.",
		Example: "  berth partition list\n  berth partition set gpu --nodes 'gpu[01-04]' --default --max-time 24h",
	}
	cmd.AddCommand(newPartitionListCmd(e, c), newPartitionShowCmd(e, c), newPartitionSetCmd(e, c), newPartitionRemoveCmd(e, c))
	return cmd
}

func newPartitionListCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "list [NAME…]", Aliases: []string{"ls"}, Short: "List partitions; * marks the default",
		Example: "  berth partition list\n  berth partition list -o json",
	}, client.Bound(e, c, runPartitionList), console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
}

func newPartitionShowCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "show NAME…", Short: "Show partitions in full",
		Example: "  berth partition show gpu",
		Args:    console.SomeArgs("partition"),
	}, client.Bound(e, c, runPartitionShow), console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
}

// getPartitions reads partitions by name, all when names is empty.
func getPartitions(ctx context.Context, c *client.Client, names []string) ([]*apiv1.Partition, error) {
	for _, name := range names {
		if err := cluster.CheckPartitionName(name); err != nil {
			return nil, console.Usagef("%w", err)
		}
	}
	resp, err := client.ListPartitions.Ask(ctx, c, client.Reads, &apiv1.ListPartitionsRequest{Names: names})
	return resp.GetPartitions(), err
}

func runPartitionList(ctx context.Context, e *console.Env, c *client.Client, f console.Format, names []string) error {
	parts, err := getPartitions(ctx, c, names)
	if err != nil {
		return err
	}
	if done, err := console.PrintRows(e, f, viewPartitions(parts), func(v partitionView) string { return v.Name }); done {
		return err
	}
	if len(parts) == 0 {
		e.Warnf("there are no partitions, so any job may run on any node; create one with: berth partition set NAME --nodes LIST")
		return nil
	}
	t := &console.Table{Cols: []console.Column{
		{Head: "PARTITION"}, {Head: "STATE"}, {Head: "TIMELIMIT", Right: true}, {Head: "NODES", Right: true}, {Head: "GPUS", Right: true},
		{Head: "RUNNING", Right: true}, {Head: "WAITING", Right: true}, {Head: "POLICY"}, {Head: "NODELIST", Shrink: true},
	}}
	for _, p := range parts {
		name := p.GetName()
		if p.GetDefault() {
			name += "*"
		}
		t.Add(name, partitionState(p), limitText(p), fmt.Sprintf("%d/%d", p.GetNodesReady(), p.GetNodesTotal()),
			fmt.Sprintf("%d/%d", p.GetGpusUsed(), p.GetGpusTotal())+lentText(p), strconv.Itoa(int(p.GetJobsRunning())), strconv.Itoa(int(p.GetJobsWaiting())),
			console.OrDash(p.GetPolicy()), p.GetNodes())
	}
	t.Print(e)
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

// gpusText says how many GPUs a job may have, "" for no bound.
func gpusText(p *apiv1.Partition) string {
	if p.GetMaxGpus() == 0 {
		return ""
	}
	return strconv.FormatInt(p.GetMaxGpus(), 10) + " a job"
}

// idleText says how long sessions may be idle, "" for no limit.
func idleText(p *apiv1.Partition) string {
	if p.GetSessionIdle() == nil {
		return ""
	}
	return "end after " + units.FormatDuration(p.GetSessionIdle().AsDuration())
}

// resizeText says whether shares of GPUs follow what jobs use.
func resizeText(p *apiv1.Partition) string {
	switch m := cluster.ResizeMode(p.GetResize()); m {
	case cluster.ResizeDefault:
		return "shrunk to what jobs with a checkpoint hook use, conservative"
	case cluster.ResizeOff:
		return "kept as granted"
	default:
		return "shrunk to what jobs use, " + m.String()
	}
}

// preemptText says whether running jobs may be preempted.
func preemptText(p *apiv1.Partition) string {
	if cluster.PreemptMode(p.GetPreempt()) == cluster.PreemptOff {
		return "for deadlines and QOS only"
	}
	return "jobs with a checkpoint hook, for jobs with much less left to do"
}

func runPartitionShow(ctx context.Context, e *console.Env, c *client.Client, f console.Format, names []string) error {
	parts, err := getPartitions(ctx, c, names)
	if err != nil {
		return err
	}
	var v any = viewPartitions(parts)
	if len(parts) == 1 {
		v = viewPartitions(parts)[0]
	}
	if done, err := console.PrintList(e, f, v); done {
		return err
	}
	for i, p := range parts {
		if f == console.FormatName {
			e.Printf("%s\n", console.Escape(p.GetName()))
			continue
		}
		if i > 0 {
			e.Printf("\n")
		}
		standard := ""
		if p.GetDefault() {
			standard = "yes"
		}
		usual := limitText(p)
		if p.GetDefaultTime() != nil {
			usual = units.FormatDuration(p.GetDefaultTime().AsDuration())
		}
		console.KeyValues(e, "",
			"Partition", p.GetName(),
			"State", partitionState(p),
			"Default", standard,
			"Nodes", p.GetNodes(),
			"GPU types", strings.Join(p.GetGpuTypes(), ", "),
			"Max time", limitText(p),
			"Default time", usual,
			"Max GPUs", gpusText(p),
			"Networks", strings.Join(p.GetNetworks(), ", "),
			"Idle GPUs", p.GetIdle(),
			"Idle sessions", idleText(p),
			"Host", hostText(p.GetHost()),
			"GPU shares", resizeText(p),
			"Preempted", preemptText(p),
			"Lends to", lendText(p),
			"GPU power", powerText(p),
			"Policy", p.GetPolicy(),
			"Access", accessText(p),
			"There now", fmt.Sprintf("%d of %s ready, %d of %s in use", p.GetNodesReady(), console.Plural(int(p.GetNodesTotal()), "node", "nodes"),
				p.GetGpusUsed(), console.Plural(int(p.GetGpusTotal()), "GPU", "GPUs")),
			"On loan", loanText(p),
			"Jobs", fmt.Sprintf("%d running, %d waiting", p.GetJobsRunning(), p.GetJobsWaiting()),
		)
	}
	return nil
}

// accessText says who may use a partition, "" for everyone.
func accessText(p *apiv1.Partition) string {
	var lists []string
	for _, l := range p.GetAccess() {
		lists = append(lists, l.GetList()+"="+strings.Join(l.GetNames(), ","))
	}
	return strings.Join(lists, " ")
}

type partitionOptions struct {
	nodes, types, maxTime, defaultTime, maxGPUs, state, networks, idle, sessionIdle, resize, preempt string
	standard                                                                                         bool
	host                                                                                             hostOptions
	power                                                                                            powerOptions
	lend                                                                                             lendOptions
	access                                                                                           map[string]*string // names by list
}

func newPartitionSetCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o partitionOptions
	cmd := &cobra.Command{
		Use: "set NAME [flags]", Short: "Create or change a partition",
		Long: "Create or change a partition; settings not given stay as they are. A new partition needs --nodes.\n" +
			"While a partition is down, nothing starts in it: its jobs wait and running ones continue. Its\n" +
			"scheduling policy is set in scheduling.policies of the coordinators' configuration.",
		Example: "  berth partition set gpu --nodes 'gpu[01-04]' --default --max-time 24h\n" +
			"  berth partition set debug --nodes gpu01 --max-time 30m\n  berth partition set gpu --state down",
		Args: console.OneArg("partition"),
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
	fs.StringVar(&o.types, "gpu-types", "", "only GPUs of these types, a comma-separated `LIST`; \"\" for all")
	fs.BoolVar(&o.standard, "default", false, "make it the default partition, instead of any other")
	fs.StringVar(&o.maxTime, "max-time", "", "maximum time limit of a job, a `TIME`, or none")
	fs.StringVar(&o.defaultTime, "default-time", "", "default time limit of a job, a `TIME`; none for --max-time")
	fs.StringVar(&o.maxGPUs, "max-gpus", "", "maximum GPUs of a job over all its nodes, a `NUMBER`, or none")
	fs.StringVar(&o.networks, "networks", "", "network access allowed to its jobs, a comma-separated `LIST` of host and none, the first being the default; \"\" leaves it to the nodes")
	fs.StringVar(&o.idle, "idle", "", "`POLICY` for jobs with idle GPUs, such as below=5%,window=30m,grace=10m,warn=1h,shrink=2h,end=4h,ok=8h, or none")
	fs.StringVar(&o.sessionIdle, "session-idle", "", "end sessions (salloc, srun outside jobs) that are idle for this `TIME`, or none")
	fs.StringVar(&o.resize, "resize", "", "whether running jobs' GPU shares shrink to what they use: `MODE` off, conservative, eager, or default, which is conservative for jobs with --checkpoint and off for others")
	fs.StringVar(&o.preempt, "preempt", "", "whether running jobs with --checkpoint make room for its waiting jobs that have much less left to do: `MODE` off, or default, which follows scheduling.preempt_wait; deadlines and QOS preempt in any case")
	o.lend.add(fs)
	o.power.add(fs)
	fs.StringVar(&o.state, "state", "", "`STATE`: up or down")
	o.host.add(fs)
	o.access = map[string]*string{}
	for _, list := range cluster.AccessLists() {
		o.access[list] = fs.String(list, "", accessHelp[list])
	}
	fs.SortFlags = false
	return cmd
}

// accessHelp describes each list of who may use a partition.
var accessHelp = map[string]string{
	cluster.AllowAccounts: "only jobs of these accounts and those below them, a comma-separated `LIST`; \"\" for all",
	cluster.DenyAccounts:  "no jobs of these accounts or those below them, a comma-separated `LIST`",
	cluster.AllowQOS:      "only jobs of these qualities of service, a comma-separated `LIST`; \"\" for all",
	cluster.DenyQOS:       "no jobs of these qualities of service, a comma-separated `LIST`",
	cluster.AllowGroups:   "only jobs of users in these groups, as known to the coordinators' hosts, a comma-separated `LIST`; \"\" for all",
}

// request returns the changes of the flags.
func (o *partitionOptions) request(name string, said func(string) bool) (*apiv1.SetPartitionRequest, error) {
	if err := cluster.CheckPartitionName(name); err != nil {
		return nil, console.Usagef("%w", err)
	}
	req := &apiv1.SetPartitionRequest{Name: name}
	if said("nodes") {
		if _, err := cluster.ParseHostList(o.nodes); err != nil {
			return nil, console.Usagef("--%w", err)
		}
		req.Nodes = &o.nodes
	}
	if said("gpu-types") {
		req.SetGpuTypes, req.GpuTypes = true, console.Items(o.types)
	}
	if said("networks") {
		req.SetNetworks, req.Networks = true, console.Items(o.networks)
	}
	if err := o.unused(req, said); err != nil {
		return nil, err
	}
	if err := o.lend.request(req, said); err != nil {
		return nil, err
	}
	for _, list := range cluster.AccessLists() {
		if said(list) {
			req.Access = append(req.Access, &apiv1.AccessList{List: list, Names: commaList(*o.access[list])})
		}
	}
	if said("default") {
		req.Default = &o.standard
	}
	for _, t := range []struct {
		flag, text string
		to         **durationpb.Duration
	}{{"max-time", o.maxTime, &req.MaxTime}, {"default-time", o.defaultTime, &req.DefaultTime}, {"session-idle", o.sessionIdle, &req.SessionIdle}} {
		if !said(t.flag) {
			continue
		}
		d, err := timeOrNone(t.text)
		if err != nil {
			return nil, console.Usagef("--%s: %w", t.flag, err)
		}
		*t.to = durationpb.New(d)
	}
	if err := o.numbers(req, said); err != nil {
		return nil, err
	}
	if said("state") {
		down := o.state == "down"
		if !down && o.state != "up" {
			return nil, console.Usagef("--state %s: want up or down", console.ShortQuote(o.state))
		}
		req.Down = &down
	}
	return req, nil
}

// unused sets what becomes of GPUs, and parts of them, that jobs do not use.
func (o *partitionOptions) unused(req *apiv1.SetPartitionRequest, said func(string) bool) error {
	if said("idle") {
		p, err := cluster.ParseIdlePolicy(o.idle)
		if err != nil {
			return console.Usagef("--%w", err)
		}
		req.Idle = new(p.String())
	}
	if said("resize") {
		if _, err := cluster.ParseResizeMode(o.resize); err != nil {
			return console.Usagef("--%w", err)
		}
		req.Resize = &o.resize
	}
	if err := o.power.request(req, said); err != nil {
		return err
	}
	if said("preempt") {
		if _, err := cluster.ParsePreemptMode(o.preempt); err != nil {
			return console.Usagef("--%w", err)
		}
		req.Preempt = &o.preempt
	}
	return nil
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

func runPartitionSet(ctx context.Context, e *console.Env, c *client.Client, req *apiv1.SetPartitionRequest) error {
	resp, err := client.SetPartition.Ask(ctx, c, client.Changes, req)
	if err != nil {
		return console.UnknownChange(err, "Repeating this is safe.")
	}
	for _, w := range resp.GetWarnings() {
		e.Warnf("warning: %s", console.Escape(w))
	}
	p := resp.GetPartition()
	standard := ""
	if p.GetDefault() {
		standard = ", the default"
	}
	e.Printf("partition %s: %s%s, %d of %s ready, %s\n", console.Escape(p.GetName()), partitionState(p), standard,
		p.GetNodesReady(), console.Plural(int(p.GetNodesTotal()), "node", "nodes"), console.Plural(int(p.GetGpusTotal()), "GPU", "GPUs"))
	return nil
}

func newPartitionRemoveCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove a partition with no waiting or running jobs",
		Example: "  berth partition remove debug",
		Args:    console.OneArg("partition"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPartitionRemove(cmd.Context(), e, c, args[0])
		},
	}
}

func runPartitionRemove(ctx context.Context, e *console.Env, c *client.Client, name string) error {
	if err := cluster.CheckPartitionName(name); err != nil {
		return console.Usagef("%w", err)
	}
	_, err := client.RemovePartition.Ask(ctx, c, client.Changes, &apiv1.RemovePartitionRequest{Name: name})
	if err != nil {
		return console.UnknownChange(err, "Check whether it still exists: berth partition list")
	}
	e.Printf("partition %s: removed\n", console.Escape(name))
	return nil
}

type partitionView struct {
	Name     string   `json:"name"`
	State    string   `json:"state"`
	Default  bool     `json:"default"`
	Nodes    string   `json:"nodes"`
	GPUTypes []string `json:"gpu_types"`
	// 0 means no limit.
	MaxSeconds     float64 `json:"max_seconds"`
	DefaultSeconds float64 `json:"default_seconds"`
	MaxGPUs        int64   `json:"max_gpus"`
	Policy         string  `json:"policy"`
	Resize         string  `json:"resize"`
	Preempt        string  `json:"preempt"`
	SessionIdle    float64 `json:"session_idle_seconds"`
	// LendTo names those it lends idle GPUs to, LendShort how soon a borrowing job without a
	// checkpoint hook must end, 0 for never; GPUsLent and GPUsBorrowed are on loan now.
	LendTo       []string `json:"lend_to"`
	LendShort    float64  `json:"lend_short_seconds"`
	GPUsLent     uint32   `json:"gpus_lent"`
	GPUsBorrowed uint32   `json:"gpus_borrowed"`
	PowerCap     string   `json:"power_cap"`
	GPUFreq      string   `json:"gpu_freq"`
	// Host is the default host memory and cores of jobs with GPUs; 0 leaves it to
	// the scheduler.
	Host hostView `json:"host"`
	// Networks is empty if the nodes decide.
	Networks    []string `json:"networks"`
	NodesTotal  uint32   `json:"nodes_total"`
	NodesReady  uint32   `json:"nodes_ready"`
	GPUsTotal   uint32   `json:"gpus_total"`
	GPUsUsed    uint32   `json:"gpus_used"`
	JobsRunning uint32   `json:"jobs_running"`
	JobsWaiting uint32   `json:"jobs_waiting"`
	// Access is who may use it, by list; empty means everyone.
	Access map[string][]string `json:"access"`
}

func viewPartitions(in []*apiv1.Partition) []partitionView {
	out := []partitionView{}
	for _, p := range in {
		access := map[string][]string{}
		for _, l := range p.GetAccess() {
			access[l.GetList()] = l.GetNames()
		}
		out = append(out, partitionView{
			Name: p.GetName(), State: partitionState(p), Default: p.GetDefault(), Nodes: p.GetNodes(), GPUTypes: append([]string{}, p.GetGpuTypes()...),
			MaxSeconds: p.GetMaxTime().AsDuration().Seconds(), DefaultSeconds: p.GetDefaultTime().AsDuration().Seconds(), MaxGPUs: p.GetMaxGpus(), Policy: p.GetPolicy(), Resize: cluster.ResizeMode(p.GetResize()).String(), Preempt: cluster.PreemptMode(p.GetPreempt()).String(), SessionIdle: p.GetSessionIdle().AsDuration().Seconds(), PowerCap: p.GetPowerCap(), GPUFreq: p.GetGpuFreq(),
			LendTo: append([]string{}, p.GetLendTo()...), LendShort: p.GetLendShort().AsDuration().Seconds(), GPUsLent: p.GetGpusLent(), GPUsBorrowed: p.GetGpusBorrowed(),
			Networks: append([]string{}, p.GetNetworks()...), NodesTotal: p.GetNodesTotal(), NodesReady: p.GetNodesReady(), GPUsTotal: p.GetGpusTotal(), GPUsUsed: p.GetGpusUsed(),
			JobsRunning: p.GetJobsRunning(), JobsWaiting: p.GetJobsWaiting(), Access: access, Host: viewHost(p.GetHost()),
		})
	}
	return out
}
