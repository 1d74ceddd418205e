package simcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/wire"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

func newSimCaptureCmd(e *console.Env, c *client.Client) *cobra.Command {
	var file string
	var unfinished bool
	cmd := &cobra.Command{
		Use:   "capture -o FILE",
		Short: "Capture the live cluster to replay it later",
		Long: "Capture the live cluster: its nodes, and the jobs that wait, run, or have ended and are still kept,\n" +
			"with their predictions and measurements. sim run --capture replays it with any policy. The file holds\n" +
			"the jobs' names, owners and requests, but no commands and no environments.",
		Example: "  berth sim capture -o monday.json",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runCapture(cmd.Context(), e, c, file, unfinished)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "`FILE` to write; - is standard output")
	cmd.Flags().BoolVar(&unfinished, "unfinished", false, "leave out jobs that have ended")
	return cmd
}

func runCapture(ctx context.Context, e *console.Env, c *client.Client, file string, unfinished bool) error {
	if file == "" {
		return console.Usagef("-o is missing; name the file to write, or - for standard output")
	}
	cp, err := takeCapture(ctx, e, c, !unfinished)
	if err != nil {
		return err
	}
	raw, err := json.MarshalIndent(cp, "", " ")
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	if file == "-" {
		_, err := e.Out.Write(raw)
		return err
	}
	if err := os.WriteFile(file, raw, 0o644); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	e.Printf("%s: %d jobs, %d nodes\n", console.Escape(file), len(cp.Jobs), len(cp.Nodes))
	return nil
}

// takeCapture reads the cluster's nodes and jobs, using only calls open to everyone.
func takeCapture(ctx context.Context, e *console.Env, c *client.Client, finished bool) (*trace.Capture, error) {
	cp := &trace.Capture{Format: trace.CaptureFormat, Taken: e.Now().UTC(), Nodes: []trace.CaptureNode{}, Jobs: []trace.CaptureJob{}}
	err := c.Call(ctx, client.Reads, func(ctx context.Context, on *wire.Conn) error {
		st, err := client.GetStatus.On(ctx, on, &apiv1.GetStatusRequest{})
		if err != nil {
			return err
		}
		cp.Cluster = st.GetName()
		cp.Policy = trace.CapturePolicy{Mode: st.GetPolicy(), MaxShares: int(st.GetMaxShares())}
		nodes, err := client.ListNodes.On(ctx, on, &apiv1.ListNodesRequest{})
		if err != nil {
			return err
		}
		cp.Nodes = cp.Nodes[:0]
		for _, n := range nodes.GetNodes() {
			cp.Nodes = append(cp.Nodes, captureNode(n))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	jobs, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Finished: finished})
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		cp.Jobs = append(cp.Jobs, captureJob(j))
	}
	return cp, nil
}

func captureNode(n *apiv1.Node) trace.CaptureNode {
	out := trace.CaptureNode{ID: n.GetId(), State: n.GetState(), CPUMilli: n.GetCpuMilli(), MemMiB: n.GetMemMib(), GPUs: []trace.CaptureGPU{}}
	for _, g := range n.GetGpus() {
		out.GPUs = append(out.GPUs, trace.CaptureGPU{Type: g.GetType(), MemMiB: g.GetMemMib(), SellableMiB: g.GetSellableMib(), MaxShares: int(g.GetMaxShares())})
	}
	return out
}

// captureJob leaves out what nobody else should read: commands and
// environments.
func captureJob(j *apiv1.Job) trace.CaptureJob {
	s := j.GetSpec()
	state, _ := cluster.ParseJobState(j.GetState())
	out := trace.CaptureJob{
		ID: j.GetId(), Name: j.GetName(), User: j.GetUser(), State: j.GetState(), Finished: state.Terminal(), GPUs: int(j.GetGpusWanted()),
		Exclusive: s.GetExclusive(), GPUType: s.GetGpuType(), CPUMilli: s.GetCpuMilli(), MemMiB: s.GetMemMib(),
		Submitted: moment(j.GetSubmitted()), Started: moment(j.GetStarted()), FirstStart: moment(j.GetStarted()), Ended: moment(j.GetEnded()),
		Deadline: moment(s.GetDeadline()), TimeLimitS: s.GetTimeLimit().AsDuration().Seconds(), Neighbours: len(j.GetNeighbours()),
	}
	for _, a := range j.GetAttempts() {
		if at := moment(a.GetStarted()); at != nil {
			out.FirstStart = at
			break
		}
	}
	if g := j.GetGpus(); len(g) > 0 {
		out.RanOn = g[0].GetType()
	}
	all := j.GetPredictions()
	if len(all) == 0 && j.GetPredicted() != nil {
		all = []*apiv1.Prediction{j.GetPredicted()}
	}
	for _, p := range all {
		out.Predictions = append(out.Predictions, trace.Forecast{
			GPUType: p.GetGpuType(), GPUMemMiB: p.GetGpuMemMib(), GPUMemP95MiB: p.GetGpuMemP95Mib(), GPUUtilMilli: p.GetGpuUtilMilli(), Seconds: p.GetSeconds(),
			HostMemMiB: p.GetHostMemMib(), CPUMilli: p.GetCpuMilli(), PowerW: p.GetPowerW(), ConfidenceMilli: int64(1000*p.GetConfidence() + 0.5), Source: p.GetSource(),
			TimeConfidenceMilli: int64(1000*p.GetTimeConfidence() + 0.5),
		})
	}
	out.Held = held(j)
	if m := j.GetMeasured(); m != nil {
		out.Measured = &trace.Measured{GPUMemMiB: m.GetGpuMemMib(), GPUUtilMilli: m.GetGpuUtilMilli(), Seconds: m.GetSeconds()}
	}
	return out
}

// held sums up what the attempts of a job held, nil if none began.
func held(j *apiv1.Job) *trace.Held {
	var h *trace.Held
	for _, a := range j.GetAttempts() {
		began, ended := moment(a.GetStarted()), moment(a.GetEnded())
		if began == nil || ended == nil || ended.Before(*began) {
			continue
		}
		if h == nil {
			h = &trace.Held{}
		}
		gpus, took := a.GetGpus(), ended.Sub(*began).Seconds()
		if parts := a.GetParts(); len(parts) > 0 {
			gpus = nil
			for _, p := range parts {
				gpus = append(gpus, p.GetGpus()...)
			}
		}
		for _, g := range gpus {
			h.GPUSeconds += took * float64(g.GetShare().GetMilli()) / cluster.WholeGPU
			h.BusySeconds += took * float64(a.GetMeasured().GetGpuUtilMilli()) / cluster.WholeGPU
			h.MiBSeconds += took * float64(g.GetShare().GetMemMib())
		}
	}
	return h
}

func moment(t *timestamppb.Timestamp) *time.Time {
	if t == nil || t.GetSeconds() == 0 && t.GetNanos() == 0 {
		return nil
	}
	return new(t.AsTime())
}

// fromCapture reads a capture, all of it or the last days before it was taken.
func (o *simWorld) fromCapture() (*simSource, error) {
	f, err := os.Open(o.capture)
	if err != nil {
		return nil, notFoundIfMissing(fmt.Errorf("--capture: %w", err))
	}
	defer f.Close()
	cp, err := trace.ReadCapture(f)
	if err != nil {
		return nil, fmt.Errorf("--capture: %s: %w", o.capture, err)
	}
	return o.ofCapture(cp, o.capture)
}

// fromLast reads from the live cluster.
func (o *simWorld) fromLast(ctx context.Context, e *console.Env, c *client.Client) (*simSource, error) {
	if _, err := Days(o.last); err != nil {
		return nil, err
	}
	cp, err := takeCapture(ctx, e, c, true)
	if err != nil {
		return nil, err
	}
	return o.ofCapture(cp, "the live cluster")
}

// Days parses a duration such as 14d, 36h or 1d12h.
func Days(s string) (time.Duration, error) {
	var d time.Duration
	rest := s
	if n, hours, ok := strings.Cut(s, "d"); ok {
		x, err := time.ParseDuration(n + "h")
		if err != nil || x < 0 || x > 100*366*time.Hour {
			return 0, console.Usagef("--last %s: want a time such as 14d or 36h", console.ShortQuote(s))
		}
		d, rest = 24*x, hours
	}
	if rest != "" {
		x, err := time.ParseDuration(rest)
		if err != nil {
			return 0, console.Usagef("--last %s: want a time such as 14d or 36h", console.ShortQuote(s))
		}
		d += x
	}
	if d <= 0 {
		return 0, console.Usagef("--last %s: want a time above 0, such as 14d or 36h", console.ShortQuote(s))
	}
	return d, nil
}

func (o *simWorld) ofCapture(cp *trace.Capture, from string) (*simSource, error) {
	opt := trace.CaptureOptions{Strict: o.strict}
	if o.last != "" {
		var err error
		if opt.Last, err = Days(o.last); err != nil {
			return nil, err
		}
	}
	w, actual, rep, err := cp.Workload(opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	f := cp.Fleet()
	if f.GPUs() == 0 {
		return nil, fmt.Errorf("%s: has no GPUs", from)
	}
	if cp.Policy.Mode != "" {
		w.Notes = append(w.Notes, "the cluster itself decided by "+cp.Policy.Mode)
	}
	return &simSource{w: w, rep: rep, fleet: &f, why: fmt.Sprintf("%d GPUs of %s", f.GPUs(), from), actual: viewActual(actual, &f)}, nil
}

// predicted lets the requested predictor say what jobs need.
func (p *simPoint) predicted(w *workload.Workload) (*workload.Workload, error) {
	switch p.predictor {
	case "errors", "":
		return w, nil
	case "builtin":
		out, err := trace.Predict(w, &p.fleet)
		if err != nil {
			return nil, fmt.Errorf("--predictor builtin: %w", err)
		}
		return out, nil
	}
	return nil, console.Usagef("--predictor %s: want errors or builtin", console.ShortQuote(p.predictor))
}
