package console

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// Page sends what a command prints from now on through the user's pager, from
// BERTH_PAGER or else PAGER, if standard output is a terminal and the pager
// is set and is not cat. The returned function waits until the user leaves
// the pager.
func Page(e *Env) (done func()) {
	command := cmp.Or(e.Getenv("BERTH_PAGER"), e.Getenv("PAGER"))
	if !e.IsTerminal || strings.TrimSpace(command) == "" || strings.TrimSpace(command) == "cat" {
		return func() {}
	}
	p := &pager{e: e, command: command}
	before := e.Out
	e.Out = bufio.NewWriter(p)
	return func() {
		// A user who has left the pager wants to see no more.
		_ = e.Out.Flush()
		p.wait()
		e.Out = before
	}
}

// pager is started by the first write to it; a command without output starts none.
type pager struct {
	e       *Env
	command string
	cmd     *exec.Cmd
	in      io.WriteCloser
}

// Write implements io.Writer.
func (p *pager) Write(b []byte) (int, error) {
	if p.in == nil {
		if err := p.start(); err != nil {
			p.e.Warnf("pager %s: %v", Escape(p.command), err)
			p.in = nopCloser{p.e.Stdout}
		}
	}
	n, err := p.in.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		return n, io.ErrClosedPipe
	}
	return n, err
}

func (p *pager) start() error {
	p.cmd = exec.Command("/bin/sh", "-c", p.command)
	p.cmd.Stdout, p.cmd.Stderr = p.e.Stdout, p.e.Stderr
	p.cmd.Env = p.e.Environ()
	if !slices.ContainsFunc(p.cmd.Env, func(v string) bool { return strings.HasPrefix(v, "LESS=") }) {
		p.cmd.Env = append(p.cmd.Env, "LESS=FRX") // quit by itself if all fits the screen
	}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	p.in = in
	return p.cmd.Start()
}

func (p *pager) wait() {
	if p.in == nil {
		return
	}
	_ = p.in.Close()
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Wait() // the pager's exit status says nothing about the command
	}
}

type nopCloser struct{ io.Writer }

// Close implements io.Closer.
func (nopCloser) Close() error { return nil }

// Progress is one status line on standard error that is shown while a command
// waits and removed afterwards. It is never shown off a terminal or for
// Slurm's commands.
type Progress struct {
	e    *Env
	last string
}

// NewProgress returns a line that is not shown yet.
func NewProgress(e *Env) *Progress { return &Progress{e: e} }

// Shown reports whether the line is visible.
func (p *Progress) Shown() bool { return p.e.StderrTerminal && p.e.Prog == "" }

// Say replaces the line with text, cut to the width of the terminal.
func (p *Progress) Say(text string) {
	text = Escape(text)
	if !p.Shown() || text == p.last {
		return
	}
	width := cmp.Or(p.e.Width(), 80)
	p.last = text
	fmt.Fprintf(p.e.Stderr, "\r\x1b[K%s", Cut(text, width-1))
}

// Clear removes the line, before anything else is written.
func (p *Progress) Clear() {
	if p.last != "" {
		p.last = ""
		fmt.Fprint(p.e.Stderr, "\r\x1b[K")
	}
}
