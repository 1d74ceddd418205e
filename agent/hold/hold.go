// Package hold is an attempt's first process that does nothing but hold the attempt's
// resources: on the nodes of a batch job where its script does not run, and for sessions in
// which users start commands. Other processes of the same user and network tell it to end, and
// with which code.
package hold

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/launch"
)

// Arg is the first argument of a process that runs Main.
const Arg = "hold-session"

// Variable is the environment variable with the name by which a holder is reached. Only its
// user and root can read it, and it cannot be guessed.
const Variable = "BERTH_HOLD"

// Script is the batch script of a job that only holds its resources, for commands that run in
// it later; it ends when nothing keeps it. With FreeScript it ends when told to.
const (
	Script     = "#!berth hold\n"
	FreeScript = "#!berth hold --free\n"
)

// Session is what the script of a session contains.
type Session struct {
	// Kept ends it when nothing keeps it.
	Kept bool
	// Idle ends it after it has been idle for this long; 0 means unset.
	Idle time.Duration
}

// Text returns the script of a session.
func (s Session) Text() string {
	text := strings.TrimSuffix(FreeScript, "\n")
	if s.Kept {
		text = strings.TrimSuffix(Script, "\n")
	}
	if s.Idle > 0 {
		text += " --idle=" + s.Idle.String()
	}
	return text + "\n"
}

// Parse parses what Text returns; false for any other script.
func Parse(script []byte) (s Session, ok bool) {
	line, found := strings.CutSuffix(string(script), "\n")
	words := strings.Split(line, " ")
	if !found || len(words) < 2 || words[0] != "#!berth" || words[1] != "hold" {
		return Session{}, false
	}
	s.Kept = true
	for _, w := range words[2:] {
		text, idle := strings.CutPrefix(w, "--idle=")
		switch {
		case w == "--free":
			s.Kept = false
		case idle:
			d, err := time.ParseDuration(text)
			if err != nil || d <= 0 {
				return Session{}, false
			}
			s.Idle = d
		default:
			return Session{}, false
		}
	}
	return s, true
}

// Config says when a holder ends by itself. It is passed as an argument.
type Config = launch.Hold

// Defaults returns the times for a session whose user may lose the connection.
func Defaults() Config { return Config{First: 10 * time.Minute, Again: 5 * time.Minute} }

// Name returns a new name for a holder.
func Name() string { return "berth-hold-" + rand.Text() }

// Run holds until told to end, and returns the exit code. name is the value of Variable, "" if
// only signals can reach the holder.
func Run(cfg Config, name string, stderr io.Writer) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	h := &holder{ends: make(chan int, 1), news: make(chan int, 16)}
	if name != "" {
		ln, err := net.Listen("unix", "@"+name)
		if err != nil {
			fmt.Fprintf(stderr, "berth: hold: %v\n", err)
			return 125
		}
		defer ln.Close()
		go h.accept(ln) // ends with the listener
	}
	return h.wait(cfg, signals, stderr)
}

type holder struct {
	ends chan int
	news chan int // +1 and -1 as keepers come and go
}

func (h *holder) wait(cfg Config, signals <-chan os.Signal, stderr io.Writer) int {
	var late <-chan time.Time
	if cfg.First > 0 {
		late = time.After(cfg.First)
	}
	keepers := 0
	for {
		select {
		case s := <-signals:
			if sig, ok := s.(syscall.Signal); ok {
				return 128 + int(sig)
			}
		case code := <-h.ends:
			return code
		case n := <-h.news:
			if keepers += n; keepers > 0 {
				late = nil
			} else if cfg.Again > 0 {
				late = time.After(cfg.Again)
			}
		case <-late:
			fmt.Fprintln(stderr, "berth: the session has nobody any more who keeps it; it ends")
			return 1
		}
	}
}

func (h *holder) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go h.serve(c)
	}
}

// serve answers a process of the same user.
func (h *holder) serve(c net.Conn) {
	defer c.Close()
	if uid, err := peer(c); err != nil || uid != os.Getuid() {
		return
	}
	line, err := bufio.NewReader(io.LimitReader(c, 64)).ReadString('\n')
	if err != nil {
		return
	}
	word, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch word {
	case "keep":
		h.news <- 1
		fmt.Fprintln(c, "ok")
		_, _ = io.Copy(io.Discard, c) // until it has gone
		h.news <- -1
	case "end":
		if code, err := strconv.Atoi(arg); err == nil && code >= 0 && code <= 255 {
			fmt.Fprintln(c, "ok")
			select {
			case h.ends <- code:
			default: // it is ending already
			}
		}
	}
}

func peer(c net.Conn) (uid int, err error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a unix socket")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var cerr error
	err = raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, cerr); err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}

// Main is a command that talks to a holder: "keep" keeps it for as long as the command runs and
// its input is open, "end CODE" ends it. It returns the exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	name := os.Getenv(Variable)
	if name == "" {
		fmt.Fprintln(stderr, "berth: hold: this job is no session: it ends by itself")
		return 125
	}
	var err error
	switch {
	case len(args) == 1 && args[0] == "keep":
		err = keep(name, stdin, stdout)
	case len(args) == 2 && args[0] == "end":
		err = say(name, "end "+args[1], nil)
	default:
		err = errors.New("started with the wrong arguments")
	}
	if err != nil {
		fmt.Fprintf(stderr, "berth: hold: %v\n", err)
		return 125
	}
	return 0
}

// keep writes a message to stdout once the holder knows.
func keep(name string, stdin io.Reader, stdout io.Writer) error {
	return say(name, "keep", func(c net.Conn) {
		fmt.Fprintln(stdout, "kept")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var once sync.Once
		go func() { _, _ = io.Copy(io.Discard, stdin); once.Do(cancel) }() // ends with this process
		go func() { _, _ = io.Copy(io.Discard, c); once.Do(cancel) }()
		<-ctx.Done()
	})
}

// dialWait is how long a holder that was started may take to listen.
const dialWait = 10 * time.Second

func dial(name string) (net.Conn, error) {
	for deadline := time.Now().Add(dialWait); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.DialTimeout("unix", "@"+name, dialWait) // #nosec G704 -- a local socket; say asks the kernel whose
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(deadline) {
			return c, err
		}
	}
}

// say sends one line to the holder, waits for its answer, and then calls then with the
// connection.
func say(name, line string, then func(net.Conn)) error {
	c, err := dial(name)
	if err != nil {
		return fmt.Errorf("reach the job's first process: %w", err)
	}
	defer c.Close()
	if uid, err := peer(c); err != nil || uid != os.Getuid() {
		return errors.Join(errors.New("the job's first process is another user's"), err)
	}
	if _, err := fmt.Fprintln(c, line); err != nil {
		return err
	}
	answer, err := bufio.NewReader(io.LimitReader(c, 3)).ReadString('\n')
	if err != nil || answer != "ok\n" {
		return fmt.Errorf("the job's first process refused %q: %w", line, err)
	}
	if then != nil {
		then(c)
	}
	return nil
}
