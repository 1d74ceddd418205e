package slurmcmd

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// elsewhere are commands of Slurm's whose work is done by others here, and by which.
var elsewhere = []struct{ name, short, way string }{
	{"sattach", "Say how to watch a job", "a step's output goes to its srun; berth logs -f JOB follows a job, berth exec JOB runs a command in it"},
	{"sbcast", "Say how files get to nodes", "files are not sent to nodes; keep them where all nodes read them, or copy them in the job by srun cp"},
	{"scrontab", "Say how jobs come regularly", "jobs are not submitted by the clock; call sbatch from cron, or let the job submit its successor by sbatch --begin"},
	{"sgather", "Say how files get from nodes", "files are not fetched from nodes; write them where all nodes do, or copy them in the job by srun cp"},
	{"sprio", "Say what the order is made of", "priorities are no sums of factors: berth queue shows the order, berth why JOB why a job waits, sshare the shares"},
	{"sreport", "Say where reports are", "use is reported by berth report, of accounts by berth report --by account"},
	{"sstat", "Say where a running job's use is", "steps are not measured one by one; berth show JOB says how a running job's GPUs are used, sacct what a job used in all"},
	{"strigger", "Say how to be told", "programs are told of events by webhooks, see berth webhook list, and people by sbatch --mail-type"},
}

// Elsewhere are the names of NewElsewhereCmds' commands, in their order.
func Elsewhere() []string {
	var names []string
	for _, x := range elsewhere {
		names = append(names, x.name)
	}
	return names
}

// NewElsewhereCmds returns the commands of Slurm's that say what to use in their place.
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
