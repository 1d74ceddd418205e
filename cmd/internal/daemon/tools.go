package daemon

import (
	"os"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd"
)

// tools are Slurm's commands for the jobs of a node: links to this program. A
// program that cannot be named gives them none.
func tools() agent.Tools {
	exe, err := os.Executable()
	if err != nil {
		return agent.Tools{}
	}
	return agent.Tools{Exe: exe, Names: slurmcmd.Applets()}
}
