// Package lab is the program berth-lab, for trying Berth out rather than
// running it: a cluster on one machine, the simulator and its experiments,
// the evaluation of the predictor, and the reference of all commands.
package lab

import (
	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/evalcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/cli/simcmd"
	"github.com/berth-scheduler/berth/cmd/internal/demo"
	"github.com/berth-scheduler/berth/cmd/internal/dev"
	"github.com/berth-scheduler/berth/cmd/internal/load"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
	"github.com/berth-scheduler/berth/cmd/internal/simjob"
)

// Program returns berth-lab.
func Program() frame.Program {
	return frame.Program{Name: programs.Lab, Example: "berth-lab demo", Commands: []frame.Command{
		{Name: "sim", New: simcmd.NewSimCmd},
		{Name: "load", New: frame.Local(load.NewCommand)},
		{Name: "dev", New: frame.Local(func(e *console.Env) *cobra.Command { return dev.NewCommand(e.Stdout, e.Stderr) })},
		{Name: "demo", New: frame.Local(func(e *console.Env) *cobra.Command { return demo.NewCommand(e.Stdout, e.Stderr) })},
		{Name: "sim-job", New: frame.Local(func(e *console.Env) *cobra.Command { return simjob.NewCommand(e.Stdout) })},
		{Name: "model", New: frame.Local(evalcmd.NewModelCmd)},
		{Name: "curves", New: newCurvesCmd},
		{Name: "reference", New: newReferenceCmd},
		{Name: "version", New: frame.Local(frame.NewVersionCmd)},
	}}
}
