// Command berth is all of Berth: the coordinator, the agent, a development
// cluster, and the command line for users and administrators.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/ranks"
	"github.com/berth-scheduler/berth/agent/step"
	"github.com/berth-scheduler/berth/agent/tunnel"
	"github.com/berth-scheduler/berth/cmd/internal/cli"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd"
	"github.com/berth-scheduler/berth/cmd/internal/daemon"
	"github.com/berth-scheduler/berth/cmd/internal/demo"
	"github.com/berth-scheduler/berth/cmd/internal/dev"
	"github.com/berth-scheduler/berth/cmd/internal/simjob"
	"github.com/berth-scheduler/berth/cmd/internal/telemetry"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == launch.RanksArg {
		// It is part of a job, and starts as fast as it can.
		os.Exit(ranks.Main(os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 1 {
		switch os.Args[1] { // beside a job's first process
		case hold.Arg:
			os.Exit(hold.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case step.Arg:
			os.Exit(step.Main(os.Stdin, os.Stdout, os.Stderr))
		case tunnel.Arg:
			os.Exit(tunnel.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		}
	}
	os.Exit(cli.Main(slurmcmd.Applet(os.Args), console.SystemEnv(), commands()...))
}

// commands are those beside the command line's own.
func commands() []*cobra.Command {
	return append(daemon.Commands(telemetry.BuildInfo().String()),
		dev.NewCommand(os.Stdout, os.Stderr),
		demo.NewCommand(os.Stdout, os.Stderr),
		simjob.NewCommand(os.Stdout),
	)
}
