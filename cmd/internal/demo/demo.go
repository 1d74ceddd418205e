// Package demo shows in a minute what Berth is for: the same training jobs,
// once sharing a few GPUs and once one to a GPU. Both times the leader is killed.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cmd/internal/dev"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
	"github.com/berth-scheduler/berth/model/zoo"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

type options struct {
	models       string
	nodes        string
	coordinators int
}

// NewCommand returns `berth demo`.
func NewCommand(stdout, stderr io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "demo", Short: "Show what Berth does, on simulated GPUs", Args: cobra.NoArgs,
		Long: `Start a cluster with simulated GPUs on this machine, train 42 well-known models on it, or those of a
directory of ONNX graphs, and compare with running the same jobs one per GPU. In both rounds the leader is killed halfway.`,
		Example: "  berth demo\n  berth demo --nodes 1x4xA100-SXM4-80GB",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return o.run(ctx, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.models, "models", "", "`DIR` with ONNX graphs to train instead of the built-in ones")
	f.StringVar(&o.nodes, "nodes", "2x1xA100-SXM4-80GB,2x1xRTX-3090,1x1xT4", "nodes of the cluster, as for berth dev")
	f.IntVar(&o.coordinators, "coordinators", 3, "number of coordinators; with 1 the leader is not killed")
	return cmd
}

func (o *options) run(ctx context.Context, out, stderr io.Writer) (err error) {
	nodes, err := dev.ParseNodes(o.nodes)
	if err != nil {
		return err
	}
	daemon, err := programs.Path(programs.Daemon)
	if err != nil {
		return err
	}
	lab, err := programs.Path(programs.Lab)
	if err != nil {
		return err
	}
	began := time.Now()
	c, err := dev.Start(ctx, dev.Options{
		Coordinators: o.coordinators, Nodes: nodes, Runtime: "process", Policy: "ffd", Overcommit: 1.25, Exe: daemon, Log: stderr,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	outDir := filepath.Join(c.Dir(), "output")
	if err := os.Mkdir(outDir, 0o755); err != nil {
		return err
	}
	models := o.models
	if models == "" {
		models = filepath.Join(c.Dir(), "models")
		if err := zoo.Write(models); err != nil {
			return err
		}
	}
	jobs, err := loadJobs(models, lab, outDir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d coordinators and %d nodes started in %.1f s; training %d models (mixed precision, AdamW)\n\n",
		o.coordinators, len(nodes), time.Since(began).Seconds(), len(jobs))
	shared, err := o.round(ctx, c, jobs, "shared", false, out)
	if err != nil {
		return err
	}
	if shared.killed != "" {
		if err := c.Restart(shared.killed); err != nil {
			return err
		}
	}
	slots, err := o.round(ctx, c, jobs, "one per GPU", true, out)
	if err != nil {
		return err
	}
	report(out, shared, slots)
	fmt.Fprintln(out, "To see a cluster in a browser, run berth dev, and in another terminal berth web")
	return verify(shared, slots)
}

// round runs all jobs once: shared as Berth does, or each alone on a GPU.
func (o *options) round(ctx context.Context, c *dev.Cluster, jobs []trainingJob, label string, alone bool, out io.Writer) (*round, error) {
	r := &round{cluster: c, show: &progress{out: out, terminal: out == os.Stdout && isTerminal(os.Stdout), total: len(jobs), label: label, began: time.Now()}}
	if o.coordinators > 2 {
		r.killAt = len(jobs) / 2
	}
	var specs []*apiv1.JobSpec
	for _, j := range jobs {
		s := proto.Clone(j.spec).(*apiv1.JobSpec)
		s.Exclusive = alone
		specs = append(specs, s)
	}
	if err := r.run(ctx, specs); err != nil {
		return nil, fmt.Errorf("%s: %w", label, err)
	}
	return r, nil
}

// verify fails the demonstration when a job was lost or failed.
func verify(rounds ...*round) error {
	for _, r := range rounds {
		for _, j := range r.jobs {
			if j.State != "COMPLETED" {
				return fmt.Errorf("job %d (%s) ended as %s: %s", j.Id, j.Name, j.State, j.ReasonDetail)
			}
		}
	}
	return nil
}

func report(out io.Writer, shared, slots *round) {
	names := map[uint64]string{}
	var jobs []*apiv1.Job
	for _, j := range shared.jobs {
		jobs = append(jobs, j)
		names[j.Id] = j.Name
	}
	sort.Slice(jobs, func(i, k int) bool { return jobs[i].Id < jobs[k].Id })
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tMODEL\tGPU\tPREDICTED\tRESERVED\tMEASURED\tWAIT\tRUN\tSHARED WITH")
	for _, j := range jobs {
		gpu, reserved := "-", int64(0)
		if len(j.Gpus) > 0 {
			gpu, reserved = j.Node+" "+j.Gpus[0].Type, j.Gpus[0].Share.GetMemMib()
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%.1f s\t%.1f s\t%s\n", j.Id, j.Name, gpu,
			gib(j.Predicted.GetGpuMemMib()), gib(reserved), gib(j.Measured.GetGpuMemMib()),
			between(j.Submitted.AsTime(), j.Started.AsTime()), between(j.Started.AsTime(), j.Ended.AsTime()), others(j, names))
	}
	_ = w.Flush()
	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "GPU\tshared: jobs\tutilization\tone per GPU: jobs\tutilization\t")
	for i, g := range shared.gpus {
		s := slots.gpus[i]
		fmt.Fprintf(w, "%s %s\t%d\t%.0f %%\t%d\t%.0f %%\t\n", g.node, g.name, g.jobs, 100*g.util, s.jobs, 100*s.util)
	}
	fmt.Fprintf(w, "mean\t\t%.0f %%\t\t%.0f %%\t\n", 100*shared.meanUtil(), 100*slots.meanUtil())
	fmt.Fprintf(w, "makespan\t\t%.1f s\t\t%.1f s\t\n", shared.makespan().Seconds(), slots.makespan().Seconds())
	_ = w.Flush()
	lost, errSum := 0, 0.0
	for _, j := range jobs {
		if j.State != "COMPLETED" {
			lost++
		}
		if m := j.Measured.GetGpuMemMib(); m > 0 {
			d := float64(j.Predicted.GetGpuMemMib() - m)
			errSum += max(d, -d) / float64(m)
		}
	}
	fmt.Fprintf(out, "\n%d jobs, %d lost or failed; GPU memory predicted to within %.0f %% on average before any job ran; sharing took %.0f %% of the time\n",
		len(jobs), lost, 100*errSum/float64(len(jobs)), 100*shared.makespan().Seconds()/slots.makespan().Seconds())
	if shared.failover > 0 {
		fmt.Fprintf(out, "the leader was killed halfway through both rounds; another answered %.1f and %.1f s later\n", shared.failover.Seconds(), slots.failover.Seconds())
	}
}

func gib(mib int64) string { return fmt.Sprintf("%.1f GiB", float64(mib)/1024) }

func between(a, b time.Time) float64 { return max(0, b.Sub(a).Seconds()) }

// others names the jobs that shared the GPU, shortened.
func others(j *apiv1.Job, names map[uint64]string) string {
	const most = 3
	var out []string
	for i, id := range j.Neighbours {
		if i == most {
			out = append(out, fmt.Sprintf("+%d", len(j.Neighbours)-most))
			break
		}
		out = append(out, names[id])
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, ", ")
}
