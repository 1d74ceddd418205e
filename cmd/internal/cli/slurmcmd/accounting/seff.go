package accounting

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/terms"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

const seffExamples = "  berth seff 12\n  ln -s /usr/bin/berth /usr/local/bin/seff && seff 12_3"

const seffUsage = "Usage: seff [Options] <Jobid>\n       Options:\n       -h    Help menu\n       -v    Version\n       -d    accepted for compatibility"

// NewSeffCmd returns the command seff.
func NewSeffCmd(e *console.Env, c *client.Client) *cobra.Command {
	var help, version, debug bool
	return option.Command(e, "seff [OPTIONS…] JOB", "Show a job's efficiency, like Slurm's seff", seffExamples, func(fs *pflag.FlagSet) {
		fs.BoolVarP(&help, "usage", "h", false, "show usage")
		fs.BoolVarP(&version, "seff-version", "v", false, "show the version")
		fs.BoolVarP(&debug, "debug", "d", false, "accepted for compatibility")
	}, func(ctx context.Context, args []string) error {
		switch {
		case version:
			e.Printf("berth %s, with the output of seff 2.1\n", console.Version().Version)
			return nil
		case help || len(args) != 1:
			e.Printf("%s\n", seffUsage)
			return &console.ExitError{Code: console.ExitFailed}
		}
		return runSeff(ctx, e, c, args[0])
	})
}

func runSeff(ctx context.Context, e *console.Env, c *client.Client, arg string) error {
	named, err := acctJobs(arg)
	if err != nil || len(named) != 1 {
		return option.Coded{Code: 2, Msg: "Job not found."}
	}
	req := &apiv1.ListHistoryRequest{Unfinished: true, OldestFirst: true, Filter: &apiv1.HistoryFilter{Ids: []uint64{named[0].id}}}
	var jobs []*apiv1.Job
	if _, err := client.ListHistory(ctx, c, req, func(page []*apiv1.Job) error {
		jobs = append(jobs, slices.DeleteFunc(page, func(j *apiv1.Job) bool { return !named[0].is(j) })...)
		return nil
	}); err != nil {
		return err
	}
	if len(jobs) == 0 {
		return option.Coded{Code: 2, Msg: "Job not found."}
	}
	at := max(0, slices.IndexFunc(jobs, func(j *apiv1.Job) bool { return j.GetId() == named[0].id }))
	s := acctRow(terms.ViewFrom(e), jobs[at])
	return slurm.Seff(e.Out, &s)
}
