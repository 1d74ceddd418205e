package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// Main runs the command that args name (without the program's name) and
// returns the exit code. extra are commands beside those of this package. The
// context that commands see ends with the first SIGINT or SIGTERM; a second
// one kills the process as if nobody listened.
func Main(args []string, env *console.Env, extra ...*cobra.Command) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(ch)
	go func() { // ends with the process at the latest
		select {
		case s := <-ch:
			signal.Stop(ch)
			sig, _ := s.(syscall.Signal)
			cancel(&console.Interruption{Sig: sig})
		case <-ctx.Done():
		}
	}()
	return Execute(ctx, args, env, extra...)
}

// Execute is Main without signals.
func Execute(ctx context.Context, args []string, env *console.Env, extra ...*cobra.Command) int {
	env.Start()
	c := client.NewClient(env)
	root := newRoot(env, c, extra...)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	c.Close()
	if ferr := env.Flush(); err == nil {
		err = ferr
	}
	code, msg := console.Classify(ctx, err)
	if msg != "" {
		env.Fail(msg)
	}
	return code
}
