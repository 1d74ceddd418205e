// Command berth is what users and administrators type and, through links to
// it, Slurm's commands. The cluster's machines run berthd, jobs run next to
// berth-job, and berth-lab is for trying Berth out: berth starts them.
package main

import (
	"os"

	"github.com/berth-scheduler/berth/agent/inside"
	"github.com/berth-scheduler/berth/cmd/internal/cli"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd"
)

func main() {
	// An agent of a release with a single program starts berth next to jobs,
	// until it is restarted.
	if code, known := inside.Main(os.Args, os.Stdin, os.Stdout, os.Stderr); known {
		os.Exit(code)
	}
	os.Exit(frame.Main(slurmcmd.Applet(os.Args), console.SystemEnv(), cli.Program()))
}
