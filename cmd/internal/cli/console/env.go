package console

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/berth-scheduler/berth/cmd/internal/devnote"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
)

// DefaultSocket is where a coordinator or the agent of a node listens for the
// users of its machine.
const DefaultSocket = devnote.DefaultSocket

// Env is everything a command may touch outside its arguments. The functions
// must not be nil; see SystemEnv.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// IsTerminal reports whether Stdout is one; Width is its width in columns,
	// 0 when unknown.
	IsTerminal bool
	Width      func() int
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
	// Now is for what is displayed, never for time-outs.
	Now func() time.Time
	// DevSockets are those of a cluster that `berth dev` runs here for the user;
	// none if there is none.
	DevSockets func() []string
	// Dial opens a connection to a unix socket.
	Dial func(ctx context.Context, path string) (net.Conn, error)
	// Become starts another of Berth's programs in this one's place. It returns only
	// if it cannot.
	Become func(program string, args []string) error
	// RequestID makes a fresh id of 16–64 characters.
	RequestID func() string

	Prog string        // what messages begin with; "" is berth
	Out  *bufio.Writer // over Stdout; flushed by Main and by commands that follow
}

// Accounts looks users and groups up as os/user does, by name or by the text of
// a number. Tests fill it in: what an account is called differs from one machine
// to the next.
type Accounts struct {
	User    func(name string) (*user.User, error)
	UserID  func(uid string) (*user.User, error)
	GroupID func(gid string) (*user.Group, error)
}

// SystemEnv is the Env of this process.
func SystemEnv() *Env {
	return &Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		IsTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		Width:      terminalWidth, StderrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		Getenv: os.Getenv, Environ: os.Environ, Getwd: os.Getwd, Hostname: os.Hostname,
		// The number, since $USER is whatever somebody set and names may need LDAP.
		User:       func() string { return strconv.Itoa(os.Getuid()) },
		Accounts:   SystemAccounts(),
		Now:        time.Now,
		DevSockets: devnote.Running,
		Dial: func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
		Become:    programs.Become,
		RequestID: newRequestID,
	}
}

// terminalWidth asks $COLUMNS, then the terminal. A width that cannot hold a
// table counts as unknown.
func terminalWidth() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= 20 {
		return n
	}
	w, _, err := term.GetSize(int(os.Stdout.Fd()))
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

// Start makes e ready for a command; it is called once before anything is printed.
func (e *Env) Start() {
	e.Prog = ""
	if e.Out == nil {
		e.Out = bufio.NewWriter(e.Stdout)
	}
}

// Printf writes to standard output; errors stay until flush.
func (e *Env) Printf(format string, args ...any) { fmt.Fprintf(e.Out, format, args...) }

// Warnf writes one line to standard error.
func (e *Env) Warnf(format string, args ...any) {
	fmt.Fprintf(e.Stderr, e.name()+": "+format+"\n", args...)
}

func (e *Env) name() string {
	if e.Prog != "" {
		return e.Prog
	}
	return "berth"
}

// Fail prints the error that ends the command; Slurm's commands say so in each
// line.
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

// Flush writes out what printf left. A reader that has gone (EPIPE) is not
// worth a message, anything else is.
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

// Sockets lists where coordinators are sought, in order: as BERTH_SOCKET has it, else
// where a machine's daemon listens, and where none does at a cluster of `berth dev`.
func (e *Env) Sockets() []string {
	return devnote.Sockets(e.Getenv("BERTH_SOCKET"), e.DevSockets)
}

// StdinTerminal returns standard input if it is a terminal.
func (e *Env) StdinTerminal() (*os.File, bool) {
	f, ok := e.Stdin.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}
