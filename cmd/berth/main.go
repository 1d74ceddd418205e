// Command berth is what users and administrators type, and by links to it Slurm's
// commands. What the cluster's machines run is berthd, what stands beside jobs
// berth-job, and what is for looking at Berth berth-lab: berth starts them.
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
	// An agent from when there was one program starts berth beside jobs, until it is
	// restarted.
	if code, known := inside.Main(os.Args, os.Stdin, os.Stdout, os.Stderr); known {
		os.Exit(code)
	}
	os.Exit(frame.Main(slurmcmd.Applet(os.Args), console.SystemEnv(), cli.Program()))
}
