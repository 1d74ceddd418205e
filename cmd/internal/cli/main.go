package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Main runs the command that args name (without the program's name) and
// returns the exit code. extra are commands beside those of this package. The
// context that commands see ends with the first SIGINT or SIGTERM; a second
// one kills the process as if nobody listened.
func Main(args []string, env *Env, extra ...*cobra.Command) int {
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
			cancel(&interruption{sig})
		case <-ctx.Done():
		}
	}()
	return execute(ctx, args, env, extra...)
}

// execute is Main without signals.
func execute(ctx context.Context, args []string, env *Env, extra ...*cobra.Command) int {
	env.init()
	c := newClient(env)
	root := newRoot(env, c, extra...)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	c.close()
	if ferr := env.flush(); err == nil {
		err = ferr
	}
	code, msg := classify(ctx, err)
	if msg != "" {
		env.fail(msg)
	}
	return code
}
