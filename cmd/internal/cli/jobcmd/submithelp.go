package jobcmd

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// section is a group of submit's flags under a title.
type section struct {
	title string
	flags string // names, in order
}

// usualFlags are the flags most jobs use, and all that help shows at first.
var usualFlags = section{"Common flags", "gpus gpu-type gpu-mem exclusive cpus mem time name partition nodes array dependency image output onnx wait"}

// allFlags holds each flag of submit once.
var allFlags = []section{
	{"Resources", "gpus batch-scaling in-place gpu-type gpu-mem gpu-util exclusive power-cap slowdown gpu-freq or-cpu no-resize idle-ok cpus mem"},
	{"Time and goals", "time expect deadline defer objective max-power max-cost"},
	{"Where", "partition nodes tasks-per-node node nodelist exclude constraint data reservation switches whole-nodes"},
	{"When", "hold begin dependency kill-on-invalid-dep array nice"},
	{"Accounts", "account qos"},
	{"Signals, checkpoints and retries", "signal checkpoint retry retry-on requeue-on-loss open-mode"},
	{"Name, files and messages", "name comment chdir output error input export mail-type mail-user metric"},
	{"Images", "image mount read-only tmp shm net"},
	{"Model", "onnx config model features batch seq-len steps optimizer precision inference lora-rank weight-bits checkpointing framework"},
	{"Submission", "spec count parsable wait strict quiet request-id help-all help"},
}

// helpBySections makes cmd's help show the usual flags, or all if *all is set.
func helpBySections(e *console.Env, cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVar(all, "help-all", false, "show help with all flags, by section")
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		e.Printf("Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
		width := 0
		if e.IsTerminal {
			width = e.Width()
		}
		sections := []section{usualFlags}
		if *all {
			sections = allFlags
		}
		for _, s := range sections {
			e.Printf("\n%s:\n%s", s.title, s.of(cmd.Flags()).FlagUsagesWrapped(width))
		}
		e.Printf("\nGlobal Flags:\n%s", cmd.InheritedFlags().FlagUsagesWrapped(width))
		if !*all {
			e.Printf("\nAll flags: %s --help-all. sbatch's options are accepted, too.\n", cmd.CommandPath())
		}
		return nil
	})
}

// of returns the flags of a section that exist in fs.
func (s *section) of(fs *pflag.FlagSet) *pflag.FlagSet {
	out := pflag.NewFlagSet(s.title, pflag.ContinueOnError)
	out.SortFlags = false
	for name := range strings.FieldsSeq(s.flags) {
		if f := fs.Lookup(name); f != nil {
			out.AddFlag(f)
		}
	}
	return out
}
