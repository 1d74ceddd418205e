package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/agent/processrt"
	"github.com/berth-scheduler/berth/cmd/internal/build"
	"github.com/berth-scheduler/berth/cmd/internal/cli/backupcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/cli/imagecmd"
	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
	"github.com/berth-scheduler/berth/cmd/internal/safefile"
	"github.com/berth-scheduler/berth/cmd/internal/serviceproxy"
	"github.com/berth-scheduler/berth/cmd/internal/telemetry"
)

// Program is berthd: the commands that run and set up daemons, and work on their files.
func Program() frame.Program {
	own := func(build func() *cobra.Command) frame.Constructor {
		return func(*console.Env, *client.Client) *cobra.Command { return build() }
	}
	version := build.Info().String()
	return frame.Program{Name: programs.Daemon, Example: "berthd agent", Commands: []frame.Command{
		{Name: "coordinator", New: own(func() *cobra.Command { return newCoordinatorCommand(version) })},
		{Name: "coordinator", New: frame.Local(backupcmd.NewCoordinatorCmd)},
		{Name: "agent", New: own(func() *cobra.Command { return newAgentCommand(version) })},
		{Name: "process-keeper", New: own(newKeeperCommand)},
		{Name: "pam", New: own(newPAMCommand)},
		{Name: "doctor", New: own(newDoctorCommand)},
		{Name: "config", New: own(newConfigCommand)},
		{Name: "cluster", New: own(newClusterCommand)},
		{Name: "cluster", New: backupcmd.NewClusterCmd},
		{Name: "service", New: serviceproxy.NewCommand},
		{Name: "image", New: frame.Local(imagecmd.NewCommand)},
		{Name: "version", New: frame.Local(frame.NewVersionCmd)},
	}}
}

type daemonOptions struct {
	config string
	set    []string
}

func (o *daemonOptions) flags(cmd *cobra.Command, path string) {
	cmd.Flags().StringVar(&o.config, "config", path, "configuration file")
	cmd.Flags().StringArrayVar(&o.set, "set", nil, "set one key: --set section.key=value; overrides file and environment")
}

func (o *daemonOptions) sources() (config.Sources, error) {
	src := config.Sources{Path: o.config, Env: os.Environ()}
	for _, s := range o.set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return src, fmt.Errorf("--set %q: want section.key=value", s)
		}
		src.Overrides = append(src.Overrides, config.Override{Key: key, Value: value, Flag: "--set " + key})
	}
	return src, nil
}

// configError gives an error of the configuration its exit code.
func configError(err error) error {
	if errors.Is(err, safefile.ErrExposed) {
		return &console.ExitError{Code: exitExposed, Err: err}
	}
	return &console.ExitError{Code: exitConfig, Err: err}
}

// untilStopped returns a context that ends with SIGTERM or SIGINT.
func untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
}

func newCoordinatorCommand(version string) *cobra.Command {
	var o daemonOptions
	cmd := &cobra.Command{
		Use: "coordinator", Short: "Run a coordinator (daemon)", Args: cobra.NoArgs,
		Long: "Run a coordinator. On SIGHUP it reads its configuration again: changes to scheduling policies take\n" +
			"effect with the next pass; changes to other keys are logged and need a restart. An invalid file\n" +
			"changes nothing.",
		Example: "  berth coordinator --config /etc/berth/coordinator.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			src, err := o.sources()
			if err != nil {
				return err
			}
			// From the start, because by default the signal ends the process.
			again := make(chan os.Signal, 1)
			signal.Notify(again, syscall.SIGHUP)
			defer signal.Stop(again)
			l, err := config.LoadCoordinator(src)
			if err == nil {
				err = l.Config.CheckFiles()
			}
			if err != nil {
				return configError(err)
			}
			log, err := telemetry.NewLogger(os.Stderr, l.Config.Log.Level, telemetry.Format(l.Config.Log.Format))
			if err != nil {
				return err
			}
			for _, w := range l.Config.Warnings() {
				log.Warn("configuration", "detail", w)
			}
			ctx, stop := untilStopped(cmd.Context())
			defer stop()
			return RunCoordinator(ctx, &Configured{
				Loaded: l, Reload: again, Again: func() (*config.Loaded[config.Coordinator], error) { return config.LoadCoordinator(src) },
			}, version, log)
		},
	}
	o.flags(cmd, "/etc/berth/coordinator.yaml")
	return cmd
}

func newAgentCommand(version string) *cobra.Command {
	var o daemonOptions
	cmd := &cobra.Command{
		Use: "agent", Short: "Run the agent of this node (daemon)", Args: cobra.NoArgs,
		Example: "  berth agent --config /etc/berth/agent.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			src, err := o.sources()
			if err != nil {
				return err
			}
			l, err := config.LoadAgent(src)
			if err == nil {
				err = l.Config.CheckFiles()
			}
			if err != nil {
				return configError(err)
			}
			log, err := telemetry.NewLogger(os.Stderr, l.Config.Log.Level, telemetry.Format(l.Config.Log.Format))
			if err != nil {
				return err
			}
			for _, w := range l.Config.Warnings() {
				log.Warn("configuration", "detail", w)
			}
			if err := refuseUnsafe(cmd.Context(), l.Config); err != nil {
				return err
			}
			ctx, stop := untilStopped(cmd.Context())
			defer stop()
			defer time.AfterFunc(restAfter, func() { rest(log) }).Stop()
			return RunAgent(ctx, l.Config, version, log)
		},
	}
	o.flags(cmd, "/etc/berth/agent.yaml")
	cmd.AddCommand(newJoinCommand(), newClearCommand(), newNVMLCommand())
	return cmd
}

// newKeeperCommand runs the small process that outlives the agent and reaps
// the jobs of the process runtime. The agent starts it.
func newKeeperCommand() *cobra.Command {
	var dir, parent, inside string
	cmd := &cobra.Command{
		Use: "process-keeper", Short: "Reap jobs for the agent (started by it)", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return processrt.KeeperMain(cmd.Context(), dir, parent, inside)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "state directory")
	cmd.Flags().StringVar(&parent, "cgroup", "/berth", "control group that holds those of the jobs")
	cmd.Flags().StringVar(&inside, "inside", "", "program that stands beside jobs")
	return cmd
}

// newConfigCommand shows the configuration a daemon would run with.
func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check and show a daemon's configuration"}
	var o daemonOptions
	show := &cobra.Command{
		Use: "print coordinator|agent", Short: "Print each value and where it comes from", Args: cobra.ExactArgs(1),
		Example: "  berth config print agent --config /etc/berth/agent.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := o.load(args[0])
			if err != nil {
				return err
			}
			return l.Print(os.Stdout)
		},
	}
	o.flags(show, "")
	var c daemonOptions
	check := &cobra.Command{
		Use: "check coordinator|agent", Short: "Check a configuration and report all its problems at once", Args: cobra.ExactArgs(1),
		Example: "  berth config check coordinator\n  berth config check agent --config ./agent.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.config == "" {
				c.config = "/etc/berth/" + args[0] + ".yaml"
			}
			if _, err := c.load(args[0]); err != nil {
				return configError(err)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: no problems\n", c.config)
			return err
		},
	}
	c.flags(check, "")
	check.Flags().Lookup("config").Usage = "configuration file; by default /etc/berth/coordinator.yaml or agent.yaml"
	cmd.AddCommand(show, check)
	return cmd
}

// load reads the configuration of a kind of daemon.
func (o *daemonOptions) load(kind string) (interface{ Print(io.Writer) error }, error) {
	src, err := o.sources()
	if err != nil {
		return nil, err
	}
	switch kind {
	case "coordinator":
		return config.LoadCoordinator(src)
	case "agent":
		return config.LoadAgent(src)
	}
	return nil, fmt.Errorf("%q: want coordinator or agent", kind)
}
