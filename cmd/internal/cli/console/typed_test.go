package console_test

import (
	"context"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// TestTypedIn: all that is typed is read, and a signal ends a read that nothing answers.
func TestTypedIn(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	e := &console.Env{Stdin: strings.NewReader("#!/bin/sh\n"), Interrupted: ctx}
	if all, err := io.ReadAll(e.TypedIn()); err != nil || string(all) != "#!/bin/sh\n" {
		t.Errorf("%q, %v", all, err)
	}
	silent, end := io.Pipe()
	defer end.Close()
	e.Stdin = silent
	stop(&console.Interruption{Sig: syscall.SIGINT})
	if all, err := io.ReadAll(e.TypedIn()); !console.Interrupted(err) || len(all) > 0 {
		t.Errorf("%q, %v, want an interruption", all, err)
	}
}
