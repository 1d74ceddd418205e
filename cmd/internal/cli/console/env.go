package console

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/devnote"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
	"github.com/berth-scheduler/berth/cmd/internal/tty"
)

// DefaultSocket is where a coordinator or a node's agent listens for the
// users of its machine.
const DefaultSocket = devnote.DefaultSocket

// Env is everything a command may touch outside its arguments. The functions
// must not be nil; see SystemEnv.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// IsTerminal reports whether Stdout is a terminal; Width is its width in
	// columns, 0 when unknown.
	IsTerminal bool
	Width      func() int
	// Height returns how many lines the terminal shows, 0 when unknown, which a
	// nil Height means too.
	Height func() int
	// StderrTerminal reports whether Stderr is one.
	StderrTerminal bool
	Getenv         func(string) string
	// Environ is the whole environment, Getwd the working directory, Hostname
	// this machine's name, User the caller's name or number.
	Environ  func() []string
	Getwd    func() (string, error)
	Hostname func() (string, error)
	User     func() string
	// Accounts knows the users and groups of this machine.
	Accounts Accounts
	// Now is for display, never for timeouts.
	Now func() time.Time
	// DevSockets returns the sockets of a cluster that `berth dev` runs here for
	// the user, if there is one.
	DevSockets func() []string
	// Dial opens a connection to a unix socket.
	Dial func(ctx context.Context, path string) (net.Conn, error)
	// Become replaces this process with another of Berth's programs. It returns
	// only on failure.
	Become func(program string, args []string) error
	// Filter passes what a command prints to a writer through a jq expression.
	Filter func(expr string, terminal bool, to io.Writer) (*Filtered, error)
	// RequestID makes a fresh id of 16–64 characters.
	RequestID func() string

	// Interrupted is done at the first signal that ends the command; nil means never.
	Interrupted context.Context

	Prog string        // the prefix of messages; "" is berth
	Out  *bufio.Writer // over Stdout; flushed by Main and by commands that follow

	filtered *Filtered // nil when Out goes to Stdout as it is
}

// envKey is the key of the Env in the context of commands.
type envKey struct{}

// With returns a context in which commands find e.
func (e *Env) With(ctx context.Context) context.Context { return context.WithValue(ctx, envKey{}, e) }

func envOf(ctx context.Context) *Env {
	e, _ := ctx.Value(envKey{}).(*Env)
	return e
}

// Filtered sits between a command and its output: the command's output goes
// in, and End returns once all of it has been processed.
type Filtered struct {
	In  io.WriteCloser
	End func() error
}

// maxExpr is the longest expression, in bytes.
const maxExpr = 64 << 10

// startFilter starts the program berth-jq. Invalid expressions are errors
// before anything is printed.
func startFilter(expr string, terminal bool, to io.Writer) (*Filtered, error) {
	if len(expr) > maxExpr {
		return nil, fmt.Errorf("the expression has %d bytes, at most %d are read", len(expr), maxExpr)
	}
	path, err := programs.Path(programs.JQ)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, expr) // #nosec G204 -- our own program
	if terminal {
		cmd.Args = append(cmd.Args, "terminal")
	}
	var words bytes.Buffer
	cmd.Stdout, cmd.Stderr = to, &words
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	ready, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	cmd.ExtraFiles = []*os.File{tell}
	err = cmd.Start()
	_ = tell.Close()
	if err != nil {
		return nil, err
	}
	end := func() error {
		err := cmd.Wait()
		switch msg, _, _ := strings.Cut(strings.TrimSpace(words.String()), "\n"); {
		case strings.Contains(msg, "out of memory"):
			return errors.New("the expression exceeded its memory limit")
		case msg != "":
			return errors.New(msg)
		}
		return err
	}
	if n, _ := ready.Read(make([]byte, 1)); n == 0 {
		_ = in.Close()
		if err := end(); err != nil {
			return nil, err
		}
		return nil, errors.New("berth-jq exited at once")
	}
	return &Filtered{In: in, End: end}, nil
}

// filter passes what is printed from now on through a jq expression.
func (e *Env) filter(expr string) (err error) {
	if e.filtered, err = e.Filter(expr, e.IsTerminal, e.Stdout); err == nil {
		e.Out.Reset(e.filtered.In)
	}
	return err
}

// End flushes the command's output for the last time and returns the overall
// result; err is the command's own.
func (e *Env) End(err error) error {
	ferr := e.Flush()
	if f := e.filtered; f != nil {
		e.filtered = nil
		_ = f.In.Close()
		jerr := f.End()
		switch quiet := errors.Is(err, ErrQuiet); {
		case jerr != nil && (err == nil || quiet):
			return fmt.Errorf("--jq: %w", jerr)
		case quiet:
			return nil // the expression stopped reading
		case errors.Is(ferr, ErrQuiet):
			return err
		}
	}
	if err == nil {
		err = ferr
	}
	return err
}

// Accounts looks up users and groups as os/user does, by name or by the text
// of a number. Tests fill it in: account names differ between machines.
type Accounts struct {
	User    func(name string) (*user.User, error)
	UserID  func(uid string) (*user.User, error)
	GroupID func(gid string) (*user.Group, error)
}

// SystemEnv returns the Env of this process.
func SystemEnv() *Env {
	return &Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		IsTerminal: tty.Is(os.Stdout),
		Width:      terminalWidth, Height: terminalHeight, StderrTerminal: tty.Is(os.Stderr),
		Getenv: os.Getenv, Environ: os.Environ, Getwd: os.Getwd, Hostname: os.Hostname,
		// The number, since users can set $USER to anything and names may need LDAP.
		User:       func() string { return strconv.Itoa(os.Getuid()) },
		Accounts:   SystemAccounts(),
		Now:        time.Now,
		DevSockets: devnote.Running,
		Dial: func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
		Become:    programs.Become,
		Filter:    startFilter,
		RequestID: newRequestID,
	}
}

func terminalHeight() int {
	_, h, err := tty.Size(os.Stdout)
	if err != nil || h < 4 {
		return 0
	}
	return h
}

// terminalWidth asks $COLUMNS, then the terminal. A width too small for a
// table counts as unknown.
func terminalWidth() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= 20 {
		return n
	}
	w, _, err := tty.Size(os.Stdout)
	if err != nil || w < 20 {
		return 0
	}
	return w
}

func newRequestID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// Start prepares e for a command; it is called once before anything is printed.
func (e *Env) Start() {
	e.Prog = ""
	if e.Out == nil {
		e.Out = bufio.NewWriter(e.Stdout)
	}
}

// Printf writes to standard output; errors stay until Flush.
func (e *Env) Printf(format string, args ...any) { fmt.Fprintf(e.Out, format, args...) }

// Warnf writes one line to standard error.
func (e *Env) Warnf(format string, args ...any) {
	fmt.Fprintf(e.Stderr, e.Name()+": "+format+"\n", args...)
}

// Name returns the prefix of messages.
func (e *Env) Name() string { return cmp.Or(e.Prog, "berth") }

// Fail prints the error that ends the command; Slurm's commands prefix each
// line with "error".
func (e *Env) Fail(msg string) {
	if e.Prog == "" {
		fmt.Fprintln(e.Stderr, "berth: "+EscapeLines(msg))
		return
	}
	for line := range strings.SplitSeq(EscapeLines(msg), "\n") {
		fmt.Fprintln(e.Stderr, e.Prog+": error: "+line)
	}
}

// ErrQuiet ends a command without a message: its reader went away.
var ErrQuiet = errors.New("standard output was closed")

// Flush writes buffered output. A reader that has gone (EPIPE) is not
// worth a message, any other error is.
func (e *Env) Flush() error {
	err := e.Out.Flush()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return ErrQuiet
	default:
		return fmt.Errorf("write to standard output: %w", err)
	}
}

// Sockets lists where to look for coordinators, in order: BERTH_SOCKET, else
// where a machine's daemon listens and, if none does, a cluster of `berth
// dev`.
func (e *Env) Sockets() []string {
	return devnote.Sockets(e.Getenv("BERTH_SOCKET"), e.DevSockets)
}

// TypedIn reads standard input for callers that need all of it before
// anything else happens: the first signal ends it with an Interruption, even
// if a terminal sent nothing.
func (e *Env) TypedIn() io.Reader {
	if e.Interrupted == nil {
		return e.Stdin
	}
	return &typedIn{ctx: e.Interrupted, from: e.Stdin}
}

type typedIn struct {
	ctx  context.Context
	from io.Reader
}

// Read may leave a blocked read behind, which ends with the process.
func (t *typedIn) Read(b []byte) (n int, err error) {
	own, done := make([]byte, len(b)), make(chan struct{})
	go func() {
		defer close(done)
		n, err = t.from.Read(own)
	}()
	select {
	case <-done:
		return copy(b, own[:n]), err
	case <-t.ctx.Done():
		return 0, context.Cause(t.ctx)
	}
}

// StdinTerminal returns standard input if it is a terminal.
func (e *Env) StdinTerminal() (*os.File, bool) {
	f, ok := e.Stdin.(*os.File)
	return f, ok && tty.Is(f)
}
