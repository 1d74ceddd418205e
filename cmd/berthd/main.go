// Command berthd runs on the machines of a cluster: the coordinator, the
// agent, and the commands that need their files.
package main

import (
	"os"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/daemon"
)

func main() {
	os.Exit(frame.Main(os.Args[1:], console.SystemEnv(), daemon.Program().CalledAs(os.Args[0])))
}
