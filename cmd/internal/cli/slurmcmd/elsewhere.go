package slurmcmd

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// elsewhere are Slurm commands whose work other commands do here, and which ones.
var elsewhere = []struct{ name, short, way string }{
	{"sattach", "Show what to use to watch a job", "a step's output goes to its srun; berth logs -f JOB follows a job, berth exec JOB runs a command in it"},
	{"sbcast", "Show what to use to send files to nodes", "files are not sent to nodes; keep them on a shared file system, or copy them in the job with srun cp"},
	{"scrontab", "Show what to use to submit jobs regularly", "jobs are not submitted on a schedule; call sbatch from cron, or let the job submit its successor with sbatch --begin"},
	{"sgather", "Show what to use to fetch files from nodes", "files are not fetched from nodes; write them to a shared file system, or copy them in the job with srun cp"},
	{"sprio", "Show what to use to see the order of jobs", "priorities are not sums of factors: berth queue shows the order, berth why JOB why a job waits, sshare the shares"},
	{"sreport", "Show what to use for reports", "for usage see berth report, by account berth report --by account"},
	{"sstat", "Show what to use to see a running job's usage", "steps are not measured separately; berth show JOB shows a running job's GPU usage, sacct a job's total"},
	{"strigger", "Show what to use to be notified", "use webhooks to notify programs (see berth webhook list), and sbatch --mail-type to notify people"},
}

// Elsewhere returns the names of NewElsewhereCmds' commands, in order.
func Elsewhere() []string {
	var names []string
	for _, x := range elsewhere {
		names = append(names, x.name)
	}
	return names
}

// NewElsewhereCmds returns the Slurm commands that only name their replacement.
func NewElsewhereCmds(e *console.Env) (cmds []*cobra.Command) {
	for _, x := range elsewhere {
		use, example := x.name+" …", "  berth "+x.name+" show"
		cmds = append(cmds, &cobra.Command{
			Use: use, Short: x.short, Example: example, Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
			RunE: func(_ *cobra.Command, args []string) error {
				e.Prog = x.name
				for _, a := range args {
					switch a {
					case "-V", "--version":
						e.Printf("%s\n", slurm.Versioned)
						return nil
					case "-h", "--help", "--usage":
						e.Printf("Usage: %s\n\n%s: %s.\n\nExamples:\n%s\n", use, x.short, x.way, example)
						return nil
					}
				}
				return option.AsSlurm(e, errors.New(x.way))
			},
		})
	}
	return cmds
}
