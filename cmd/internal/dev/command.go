package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/devnote"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
)

type command struct {
	opts  Options
	nodes string
}

// NewCommand returns `berth dev`.
func NewCommand(stdout, stderr io.Writer) *cobra.Command {
	var c command
	cmd := &cobra.Command{
		Use:   "dev [flags] [-- COMMAND [ARG...]]",
		Short: "Run a whole cluster on this machine",
		Long: `Run coordinators and agents on this machine, each as a process of its own, with certificates and
identities as on a real site. With a command, run it with BERTH_SOCKET set, stop the cluster when it
ends, and exit with its status. Without one, stay until Ctrl-C.`,
		Example: `  berth dev
  berth dev --coordinators 3 --nodes 4x2xA100-SXM4-80GB,1x4xT4
  berth dev -- sh -c 'berth submit --wait -- hostname'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.opts.Coordinators, "coordinators", 1, "number of coordinators, 1 to 7")
	f.StringVar(&c.nodes, "nodes", "2x2xA100-SXM4-80GB", "nodes: NODESxGPUSxTYPE, nvml or cpu, with features appended as @a+b; separate several with commas")
	f.StringVar(&c.opts.Dir, "dir", "", "directory for state and logs, kept afterwards (default a temporary one)")
	f.StringVar(&c.opts.Runtime, "runtime", "process", "what runs jobs: process or containerd")
	f.BoolVar(&c.opts.Busybox, "busybox", false, "with --runtime containerd, import the image berth.test/busybox:static")
	f.StringVar(&c.opts.Policy, "policy", "ffd", "scheduling policy, as in scheduling.policy, such as slot or bestfit+sjf")
	return cmd
}

func (c *command) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	nodes, err := ParseNodes(c.nodes)
	if err != nil {
		return err
	}
	c.opts.Nodes, c.opts.Log = nodes, stderr
	if c.opts.Exe, err = programs.Path(programs.Daemon); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	cl, err := Start(ctx, c.opts)
	if err != nil {
		return err
	}
	wctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { defer close(watched); cl.Watch(wctx) }()
	code, err := 0, error(nil)
	if len(args) > 0 {
		code, err = runUser(ctx, args, cl.Env(os.Environ()), [3]*os.File{os.Stdin, os.Stdout, os.Stderr})
	} else {
		err = stay(ctx, cl, stdout, stderr)
	}
	cancel()
	<-watched
	stop() // a second Ctrl-C ends it at once
	err = errors.Join(err, cl.Stop())
	if err == nil && code != 0 {
		return &console.ExitError{Code: code} // the command has reported its own error
	}
	return err
}

// stay says how to use the cluster, lets other terminals find it, and waits until ctx ends.
func stay(ctx context.Context, cl *Cluster, stdout, stderr io.Writer) error {
	takeBack, err := devnote.Here().Leave(cl.Sockets())
	if err != nil {
		fmt.Fprintf(stderr, "berth: warning: other terminals will not find this cluster by themselves: %v\n", err)
		takeBack = func() error { return nil }
	}
	fmt.Fprintf(stdout, "The cluster is up: %s, %s, in %s\n",
		console.Plural(cl.opts.Coordinators, "coordinator", "coordinators"), console.Plural(len(cl.opts.Nodes), "node", "nodes"), cl.Dir())
	fmt.Fprintf(stdout, `
In another terminal:

  berth submit --gpus 1 -- berth sim-job --gpu-mem 6GiB --gpu-util 40 --seconds 20
  berth
  berth web     # prints a link to its web page

If several clusters run on this machine, select this one:

  export BERTH_SOCKET=%s

Press Ctrl-C to stop it.
`, cl.Sockets())
	<-ctx.Done()
	return takeBack()
}
