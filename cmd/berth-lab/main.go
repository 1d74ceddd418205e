// Command berth-lab is for trying Berth out rather than running it: a cluster
// on one machine, the simulator, the evaluation of the predictor.
package main

import (
	"os"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/lab"
)

func main() {
	os.Exit(frame.Main(os.Args[1:], console.SystemEnv(), lab.Program().CalledAs(os.Args[0])))
}
