package cli

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
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

// DefaultSocket is where a coordinator or the agent of a node listens for the
// users of its machine.
const DefaultSocket = "/run/berth/berth.sock"

// Env is everything a command may touch outside its arguments. The functions
// must not be nil; see SystemEnv.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// IsTerminal tells whether Stdout is one; Width is its width in columns,
	// 0 when unknown.
	IsTerminal bool
	Width      func() int
	Getenv     func(string) string
	// Environ is the whole environment, Getwd the working directory, Hostname
	// this machine's name, User the caller's name or number.
	Environ  func() []string
	Getwd    func() (string, error)
	Hostname func() (string, error)
	User     func() string
	// Now is for what is displayed, never for time-outs.
	Now func() time.Time
	// Dial opens a connection to a unix socket.
	Dial func(ctx context.Context, path string) (net.Conn, error)
	// RequestID makes a fresh id of 16–64 characters.
	RequestID func() string

	prog string        // what messages begin with; "" is berth
	out  *bufio.Writer // over Stdout; flushed by Main and by commands that follow
}

// SystemEnv is the Env of this process.
func SystemEnv() *Env {
	return &Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		IsTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		Width:      terminalWidth,
		Getenv:     os.Getenv, Environ: os.Environ, Getwd: os.Getwd, Hostname: os.Hostname,
		// The number, since $USER is whatever somebody set and names may need LDAP.
		User: func() string { return strconv.Itoa(os.Getuid()) },
		Now:  time.Now,
		Dial: func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
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

func (e *Env) init() {
	e.prog = ""
	if e.out == nil {
		e.out = bufio.NewWriter(e.Stdout)
	}
}

// printf writes to standard output; errors stay until flush.
func (e *Env) printf(format string, args ...any) { fmt.Fprintf(e.out, format, args...) }

// warnf writes one line to standard error.
func (e *Env) warnf(format string, args ...any) {
	fmt.Fprintf(e.Stderr, e.name()+": "+format+"\n", args...)
}

func (e *Env) name() string {
	if e.prog != "" {
		return e.prog
	}
	return "berth"
}

// fail prints the error that ends the command; Slurm's commands say so in each
// line.
func (e *Env) fail(msg string) {
	if e.prog == "" {
		fmt.Fprintln(e.Stderr, "berth: "+escapeLines(msg))
		return
	}
	for line := range strings.SplitSeq(escapeLines(msg), "\n") {
		fmt.Fprintln(e.Stderr, e.prog+": error: "+line)
	}
}

// errQuiet ends a command without a message: its reader went away.
var errQuiet = errors.New("standard output was closed")

// flush writes out what printf left. A reader that has gone (EPIPE) is not
// worth a message, anything else is.
func (e *Env) flush() error {
	err := e.out.Flush()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return errQuiet
	default:
		return fmt.Errorf("write to standard output: %w", err)
	}
}

// sockets lists where coordinators are sought, in order.
func (e *Env) sockets() []string {
	var out []string
	for s := range strings.SplitSeq(e.Getenv("BERTH_SOCKET"), ",") {
		if s = strings.TrimPrefix(strings.TrimSpace(s), "unix://"); s != "" {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		out = []string{DefaultSocket}
	}
	return out
}

// stdinTerminal returns standard input if it is a terminal.
func (e *Env) stdinTerminal() (*os.File, bool) {
	f, ok := e.Stdin.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}
