package jq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
)

// Main is the program berth-jq: it filters by its first argument. A second
// argument says that the output is a terminal. Once it has parsed the
// expression it writes a byte to ready, before it reads anything else. The
// exit code is 2 for an invalid expression.
func Main(args []string, in io.Reader, out, errs io.Writer, ready io.WriteCloser) int {
	// It ends with its input: a user who interrupts the command sees what it
	// printed so far.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	if len(args) < 1 || len(args) > 2 {
		fmt.Fprintln(errs, "this program is part of berth: use the --jq option of its commands")
		return 2
	}
	f, err := New(args[0])
	if err != nil {
		fmt.Fprintln(errs, err)
		return 2
	}
	f.Terminal = len(args) == 2
	if ready != nil {
		_, _ = ready.Write([]byte{1})
		_ = ready.Close()
	}
	err = f.Run(context.Background(), in, out)
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return 0 // the reader wants no more
	}
	fmt.Fprintln(errs, err)
	return 1
}
