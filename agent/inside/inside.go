// Package inside contains everything that runs next to a job's own processes: what becomes the
// job in its container, copies its output, runs its ranks and steps, holds an allocation open
// and carries tunnels. It is the whole of the program berth-job, which an agent starts next to
// jobs and mounts into their containers: it links little, and starts as fast as a job should.
package inside

import (
	"fmt"
	"os"

	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/agent/jobside"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/ranks"
	"github.com/berth-scheduler/berth/agent/step"
	"github.com/berth-scheduler/berth/agent/tunnel"
)

// Main runs what argv, including the program's name, asks for and returns the exit code. known
// reports whether argv names any of it.
func Main(argv []string, stdin, stdout, stderr *os.File) (code int, known bool) {
	if len(argv) < 2 {
		return 0, false
	}
	args := argv[2:]
	switch argv[1] {
	case launch.RanksArg:
		if len(args) == 0 {
			return 0, false
		}
		return ranks.Main(args, stderr), true
	case hold.Arg:
		return hold.Main(args, stdin, stdout, stderr), true
	case step.Arg:
		return step.Main(stdin, stdout, stderr), true
	case tunnel.Arg:
		return tunnel.Main(args, stdin, stdout, stderr), true
	case jobside.ProbeArg:
		if len(args) == 0 {
			return 0, false
		}
		if err := jobside.Probe(args, stdout); err != nil {
			fmt.Fprintf(stderr, "berth-job: %v\n", err)
			return 1, true
		}
		return 0, true
	}
	return jobside.Main(argv)
}
