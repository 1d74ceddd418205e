// Package load measures what a cluster of a given size costs its coordinators: it
// starts them as processes, and simulates nodes, jobs, clients and watchers.
package load

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
)

// NewCommand returns `berth load`.
func NewCommand(e *console.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "load", Short: "Measure what a cluster of a given size costs its coordinators", Args: cobra.NoArgs,
		Long: `Start coordinators on this machine as processes, with the settings of a site and Raft on disk, and load
them: simulated nodes connect, each with a certificate of its own, and run simulated jobs, which clients
submit and watchers follow. Then print what it took, beside what a coordinator should need for 10,000
nodes. Nodes and clients share this machine's cores with the coordinators: compare processor time
rather than time where they are busy.

The jobs of --jobs are submitted first, and end. Then --running jobs fill GPUs and run until the end,
and --waiting jobs wait for whole nodes.`,
		Example: `  berth load --nodes 100 --jobs 10000
  berth load --nodes 10000 --gpus 8 --jobs 100000 --running 100000 --waiting 900000 --watchers 1000 --kill-leader`,
	}
	console.Formatted(cmd, func(ctx context.Context, f console.Format, _ []string) error {
		files, err := openFiles()
		if err != nil {
			return err
		}
		if err := o.check(files); err != nil {
			return &console.UsageError{Cmd: cmd.CommandPath(), Err: err}
		}
		exe, err := programs.Path(programs.Daemon)
		if err != nil {
			return err
		}
		figures, err := measure(ctx, &o, exe, e.Stderr)
		if err != nil {
			return err
		}
		return show(e, f, figures)
	}, console.FormatTable, console.FormatJSON, console.FormatYAML)
	f := cmd.Flags()
	f.IntVar(&o.coordinators, "coordinators", 1, "number of coordinators: 1 or 3")
	f.IntVar(&o.nodes, "nodes", 100, "number of simulated nodes")
	f.IntVar(&o.gpus, "gpus", 8, "GPUs of each")
	f.IntVar(&o.jobs, "jobs", 10_000, "jobs that are submitted and end")
	f.Float64Var(&o.rate, "rate", 0, "submit so many of them a second; 0 is as fast as it goes")
	f.DurationVar(&o.run, "run", 0, "how long each of them runs")
	f.IntVar(&o.clients, "clients", 8, "clients that submit at once")
	f.IntVar(&o.batch, "batch", 1, "jobs that a client submits in one request")
	f.IntVar(&o.running, "running", 0, "jobs that run until the end, up to three on each GPU")
	f.IntVar(&o.waiting, "waiting", 0, "jobs that wait until the end; all GPUs must be in use")
	f.DurationVar(&o.rest, "rest", 10*time.Second, "for how long to measure at rest and with watchers")
	f.IntVar(&o.watchers, "watchers", 0, "clients that watch all jobs")
	f.IntVar(&o.changes, "changes", 100, "changes of jobs a second while they watch")
	f.BoolVar(&o.killLeader, "kill-leader", false, "at the end, kill the leader and start it again")
	f.StringVar(&o.dir, "dir", "", "directory for state and logs, kept afterwards (default a temporary one)")
	return cmd
}
