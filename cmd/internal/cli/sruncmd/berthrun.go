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
		Short: "Run a command in a job of its own, here at the terminal",
		Long: "Submit a job, wait until it starts, and run COMMAND in it as if it ran here: standard input,\n" +
			"output and signals are passed on, and the exit code is the command's. What is asked for is said\n" +
			"as for berth submit. The job ends with the command, and some minutes after this program died;\n" +
			"when the connection breaks for less, the command goes on and no byte is lost.",
		Example: "  berth run --gpus 1 --gpu-mem 8G -- python train.py\n  berth run --gpus 1 --pty --idle-limit 30m -- bash",
		RunE: func(cmd *cobra.Command, words []string) error {
			if len(words) == 0 {
				return console.Usagef("the command is missing, such as: berth run --gpus 1 -- nvidia-smi")
			}
			if args.File != "" {
				return console.Usagef("--spec: what runs is said here; leave it out")
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
	fs.BoolVar(&label, "label", false, "print the number of its process before each line, with several")
	fs.StringVar(&idle, "idle-limit", "", "end it after so much `TIME` in which nothing is typed and nothing computed, such as 30 (minutes) or 90s")
	jobspec.RegisterSlurm(fs, &args.Slurm)
	fs.SetInterspersed(false) // what follows the command is the command's
	return cmd
}
