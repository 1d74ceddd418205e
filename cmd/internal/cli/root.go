package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/acctcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/admin"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/enter"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/cli/importcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/modelcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/notifycmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/servicecmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/accounting"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/control"
	"github.com/berth-scheduler/berth/cmd/internal/cli/sruncmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/statuscmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/studycmd"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
)

// Program returns berth, which users and administrators type.
func Program() frame.Program {
	p := frame.Program{Name: programs.Users, Example: "berth queue", Bare: statuscmd.Bare, Complete: completed, Groups: []cobra.Group{
		{ID: "start", Title: "Submit:"}, {ID: "jobs", Title: "Jobs:"}, {ID: "inside", Title: "Inside a running job:"}, {ID: "used", Title: "Accounting:"},
		{ID: "cluster", Title: "Cluster:"}, {ID: "policy", Title: "Accounts, limits and access:"}, {ID: "setup", Title: "Setup and maintenance:"},
		{ID: "try", Title: "Try it without a cluster:"},
	}}
	for _, group := range [][]frame.Command{
		frame.In("start", start()...), frame.In("jobs", jobs()...), frame.In("inside", inside()...), frame.In("used", used()...), frame.In("cluster", nodes()...),
		frame.In("policy", policy()...), slurm(), elsewhere(), frame.In("setup", setup()...), frame.In("try", try()...),
	} {
		p.Commands = append(p.Commands, group...)
	}
	return p
}

func start() []frame.Command {
	return []frame.Command{
		{Name: "submit", New: jobcmd.NewSubmitCmd},
		{Name: "run", New: sruncmd.NewRunCmd},
		{Name: "notebook", New: sruncmd.NewNotebookCmd},
		{Name: "predict", New: modelcmd.NewPredictCmd},
		{Name: "features", New: frame.Local(modelcmd.NewFeaturesCmd)},
		{Name: "lint", New: frame.Local(slurmcmd.NewLintCmd)},
	}
}

func jobs() []frame.Command {
	return []frame.Command{
		{Name: "status", New: statuscmd.NewStatusCmd},
		{Name: "queue", New: jobcmd.NewQueueCmd},
		frame.Away(programs.Top, "top", "Watch jobs, GPUs, nodes and users on a live screen"),
		{Name: "web", New: statuscmd.NewWebCmd},
		{Name: "show", New: jobcmd.NewShowCmd},
		{Name: "why", New: jobcmd.NewWhyCmd},
		{Name: "wait", New: jobcmd.NewWaitCmd},
		{Name: "cancel", New: jobcmd.NewCancelCmd},
		{Name: "hold", New: jobcmd.NewHoldCmd},
		{Name: "release", New: jobcmd.NewReleaseCmd},
		{Name: "requeue", New: jobcmd.NewRequeueCmd},
		{Name: "update", New: jobcmd.NewUpdateCmd},
		{Name: "study", New: studycmd.NewStudyCmd},
		{Name: "service", New: servicecmd.NewServiceCmd},
		frame.Away(programs.Daemon, "service proxy", "Serve one address that forwards to a service's replicas"),
		{Name: "webhook", New: notifycmd.NewWebhookCmd},
	}
}

func inside() []frame.Command {
	return []frame.Command{
		{Name: "logs", New: enter.NewLogsCmd},
		{Name: "shell", New: enter.NewShellCmd},
		{Name: "exec", New: enter.NewExecCmd},
		{Name: "signal", New: enter.NewSignalCmd},
		{Name: "tunnel", New: sruncmd.NewTunnelCmd},
	}
}

func used() []frame.Command {
	return []frame.Command{
		{Name: "eff", New: acctcmd.NewEffCmd},
		{Name: "history", New: acctcmd.NewHistoryCmd},
		{Name: "report", New: acctcmd.NewReportCmd},
	}
}

func nodes() []frame.Command {
	return []frame.Command{
		{Name: "node", New: admin.NewNodeCmd},
		{Name: "gpu", New: admin.NewGPUCmd},
		frame.Away(programs.Top, "gpu top", "Watch the GPUs on a live screen"),
		{Name: "partition", New: admin.NewPartitionCmd},
		{Name: "reservation", New: admin.NewReservationCmd},
		{Name: "cluster", New: admin.NewClusterCmd},
		{Name: "model", New: modelcmd.NewModelCmd},
	}
}

func policy() []frame.Command {
	return []frame.Command{
		{Name: "account", New: admin.NewAccountCmd},
		{Name: "qos", New: admin.NewQOSCmd},
		{Name: "quota", New: admin.NewQuotaCmd},
		{Name: "deny", New: admin.NewDenyCmd},
		{Name: "allow", New: admin.NewAllowCmd},
		{Name: "token", New: admin.NewTokenCmd},
	}
}

func slurm() []frame.Command {
	return []frame.Command{
		{Name: "sbatch", New: slurmcmd.NewSbatchCmd},
		{Name: "squeue", New: slurmcmd.NewSqueueCmd},
		{Name: "scancel", New: control.NewScancelCmd},
		{Name: "sinfo", New: slurmcmd.NewSinfoCmd},
		{Name: "scontrol", New: control.NewScontrolCmd},
		{Name: "sacct", New: accounting.NewSacctCmd},
		{Name: "seff", New: accounting.NewSeffCmd},
		{Name: "sshare", New: accounting.NewSshareCmd},
		{Name: "sacctmgr", New: accounting.NewSacctmgrCmd},
		{Name: "sdiag", New: slurmcmd.NewSdiagCmd},
		{Name: "srun", New: sruncmd.NewSrunCmd},
		{Name: "salloc", New: sruncmd.NewSallocCmd},
	}
}

// elsewhere returns the Slurm commands that only name their replacement.
func elsewhere() []frame.Command {
	var out []frame.Command
	for i, name := range slurmcmd.Elsewhere() {
		out = append(out, frame.Command{Name: name, New: frame.Local(func(e *console.Env) *cobra.Command { return slurmcmd.NewElsewhereCmds(e)[i] })})
	}
	return out
}

// setup returns the commands that create and maintain a cluster, and those
// about this program. Commands for which berth starts another program are
// listed here and in try, so that users need not know which program has them;
// a test compares their descriptions.
func setup() []frame.Command {
	return []frame.Command{
		{Name: "import", New: func(e *console.Env, c *client.Client) *cobra.Command {
			return importcmd.NewImportCmd(e, c, func(ctx context.Context, args []string) error { return frame.Again(ctx, args, e, c, Program()) })
		}},
		{Name: "completion", New: frame.Local(newCompletionCmd)},
		{Name: "version", New: frame.Local(frame.NewVersionCmd)},
		frame.Away(programs.Daemon, "coordinator", "Run a coordinator (daemon)"),
		frame.Away(programs.Daemon, "agent", "Run the agent of this node (daemon)"),
		frame.Away(programs.Daemon, "cluster init", "Create the certificates and configuration of a new cluster"),
		frame.Away(programs.Daemon, "cluster snapshot", "Save and restore the coordinators' state"),
		frame.Away(programs.Daemon, "config", "Check and show a daemon's configuration"),
		frame.Away(programs.Daemon, "doctor", "Check this machine for problems and say how to fix them"),
		frame.Away(programs.Daemon, "image", "Manage this node's container images (root)"),
		frame.Away(programs.Daemon, "pam", ""),
		frame.Away(programs.Daemon, "process-keeper", ""),
	}
}

func try() []frame.Command {
	return []frame.Command{
		frame.Away(programs.Lab, "demo", "Show what Berth does, on simulated GPUs"),
		frame.Away(programs.Lab, "dev", "Run a whole cluster on this machine"),
		frame.Away(programs.Lab, "load", "Measure what a cluster of a given size costs its coordinators"),
		frame.Away(programs.Lab, "model eval", "Evaluate predictions against data sets of measured runs"),
		frame.Away(programs.Lab, "model fit", "Train a model on data sets of measured runs"),
		frame.Away(programs.Lab, "sim", "Replay job traces against the scheduler in virtual time"),
		frame.Away(programs.Lab, "sim-job", "Run a workload on simulated GPUs (inside a job)"),
		frame.Away(programs.Lab, "reference", ""),
		frame.Away(programs.Lab, "curves", ""),
	}
}
