package sruncmd

import (
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/units"
)

// NewRunCmd returns the command run.
func NewRunCmd(e *console.Env, c *client.Client) *cobra.Command {
	args := &jobspec.SpecArgs{}
	var idle string
	var pty, label bool
	cmd := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARG…]",
		Short: "Run a command in a job, attached to this terminal",
		Long: "Submit a job, wait until it starts, and run COMMAND in it as if it ran here: standard input, output and\n" +
			"signals are passed on, and the exit code is the command's. Options are those of berth submit. The job\n" +
			"ends with the command, or some minutes after this program dies; if the connection breaks for less, the\n" +
			"command continues and no byte is lost.",
		Example: "  berth run --gpus 1 --gpu-mem 8G -- python train.py\n  berth run --gpus 1 --pty --idle-limit 30m -- bash",
		RunE: func(cmd *cobra.Command, words []string) error {
			if len(words) == 0 {
				return console.Usagef("the command is missing, such as: berth run --gpus 1 -- nvidia-smi")
			}
			if args.File != "" {
				return console.Usagef("--spec: the command is given here; leave it out")
			}
			session := hold.Session{Kept: true}
			if idle != "" {
				d, err := units.ParseDuration(idle)
				if err != nil || d < time.Second {
					return console.Usagef("--idle-limit %s: want a time such as 30 (minutes) or 90s", console.ShortQuote(idle))
				}
				session.Idle = d
			}
			o := &options{values: map[string]string{}, command: words}
			for name, on := range map[string]bool{"pty": pty, "label": label} {
				if on {
					o.values[name] = ""
				}
			}
			a, err := submitSession(cmd.Context(), e, c, args, filepath.Base(words[0]), session)
			if err != nil {
				return err
			}
			return a.runStep(cmd.Context(), e, o)
		},
	}
	args.Register(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&pty, "pty", false, "give the command a terminal")
	fs.BoolVar(&label, "label", false, "prefix each line with the number of its process, if there are several")
	fs.StringVar(&idle, "idle-limit", "", "end the job after this `TIME` without input or computation, such as 30 (minutes) or 90s")
	jobspec.RegisterSlurm(fs, &args.Slurm)
	fs.SetInterspersed(false) // what follows the command belongs to the command
	return cmd
}
