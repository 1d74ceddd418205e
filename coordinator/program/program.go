// Package program runs the programs of a site: those that send its mail, and power its nodes
// down and up.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// maxOutput is how much of a program's output is kept.
const maxOutput = 4096

// Program is one of the site's programs.
type Program struct {
	// Path is absolute; it is run without a shell.
	Path string
	// Timeout is after how long it is killed, with all that it started.
	Timeout time.Duration
}

// Run runs the program to its end, with input as its standard input. Processes that it leaves
// in the background go on. The error says how it ended, with the first of its output, in one
// line.
func (p Program) Run(ctx context.Context, input []byte, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Path, args...)
	cmd.Stdin = bytes.NewReader(input)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out limited
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // background processes it left may hold its output
		return nil
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("killed, as it took longer than %s", p.Timeout)
	}
	if said := out.line(); said != "" {
		return fmt.Errorf("%s: %w: %.200s", p.Path, err, said)
	}
	return fmt.Errorf("%s: %w", p.Path, err)
}

// limited keeps the first bytes and discards the rest.
type limited struct{ buf bytes.Buffer }

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	l.buf.Write(p[:min(len(p), maxOutput-l.buf.Len())])
	return len(p), nil
}

// line returns what was kept as one line of printable text.
func (l *limited) line() string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(l.buf.String(), "?")))
}
