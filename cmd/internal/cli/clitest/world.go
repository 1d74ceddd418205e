package clitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-scheduler/berth/cmd/internal/cli"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jq"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// Now is what clocks show in tests.
var Now = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

// World is one test's environment: sockets with servers, variables, and what
// a command wrote.
type World struct {
	T       testing.TB
	Env     *console.Env
	Out     bytes.Buffer
	Errs    bytes.Buffer
	Vars    map[string]string
	Sockets map[string]*bufconn.Listener
	// More are commands in addition to those of berth.
	More []frame.Command
}

// NewWorld returns the environment of ann on a login host, where nothing
// listens yet; BERTH_SOCKET is /a. more are commands of programs other than
// berth.
func NewWorld(t testing.TB, more ...frame.Command) *World {
	w := &World{T: t, More: more, Vars: map[string]string{"USER": "ann", "BERTH_SOCKET": "/a"}, Sockets: map[string]*bufconn.Listener{}}
	w.Env = &console.Env{
		Stdin: strings.NewReader(""), Stdout: &w.Out, Stderr: &w.Errs, Width: func() int { return 0 },
		Getenv:   func(k string) string { return w.Vars[k] },
		Environ:  func() []string { return []string{"PATH=/usr/bin", "HOME=/home/ann", "SHLVL=1"} },
		Getwd:    func() (string, error) { return "/home/ann/run", nil },
		Hostname: func() (string, error) { return "login", nil },
		User:     func() string { return w.Vars["USER"] },
		Accounts: Accounts(),
		Now:      func() time.Time { return Now },
		Dial: func(ctx context.Context, path string) (net.Conn, error) {
			if l, ok := w.Sockets[path]; ok {
				return l.DialContext(ctx)
			}
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", os.ErrNotExist)}
		},
		Become: func(program string, args []string) error {
			return fmt.Errorf("%s is started with %q", program, args)
		},
		Filter:    filter,
		RequestID: func() string { return "0123456789abcdef0123456789abcdef" },
	}
	return w
}

// filter does what the program berth-jq does, without a process.
func filter(expr string, terminal bool, to io.Writer) (*console.Filtered, error) {
	f, err := jq.New(expr)
	if err != nil {
		return nil, err
	}
	f.Terminal = terminal
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := f.Run(context.Background(), out, to)
		_ = out.CloseWithError(io.ErrClosedPipe)
		done <- err
	}()
	return &console.Filtered{In: in, End: func() error { return <-done }}, nil
}

// Accounts returns those of a minimal machine: root, daemon and nobody, and a
// group each.
func Accounts() console.Accounts {
	ids := map[string]string{"root": "0", "daemon": "1", "nobody": "65534"}
	byID := func(id string) (*user.User, error) {
		for name, x := range ids {
			if x == id {
				return &user.User{Uid: id, Gid: id, Username: name, HomeDir: "/"}, nil
			}
		}
		n, err := strconv.Atoi(id)
		if err != nil {
			return nil, err
		}
		return nil, user.UnknownUserIdError(n)
	}
	return console.Accounts{
		User: func(name string) (*user.User, error) {
			if id, ok := ids[name]; ok {
				return byID(id)
			}
			return nil, user.UnknownUserError(name)
		},
		UserID: byID,
		GroupID: func(gid string) (*user.Group, error) {
			if u, err := byID(gid); err == nil {
				return &user.Group{Gid: gid, Name: u.Username}, nil
			}
			return nil, user.UnknownGroupIdError(gid)
		},
	}
}

// Serve starts f behind a socket until the test ends.
func (w *World) Serve(socket string, f *Fake) { w.ServeWith(socket, f, f) }

// ServeParted is Serve for a cluster with partitions.
func (w *World) ServeParted(socket string, p *Parted) { w.ServeWith(socket, p.Fake, p) }

// ServeWith is Serve with another server for the cluster service.
func (w *World) ServeWith(socket string, f *Fake, c apirpc.ClusterServiceServer) {
	w.ServeGRPC(socket, func(s *grpc.Server) {
		apirpc.RegisterJobServiceServer(s, f)
		apirpc.RegisterClusterServiceServer(s, c)
		apirpc.RegisterModelServiceServer(s, f)
		apirpc.RegisterHistoryServiceServer(s, f)
		apirpc.RegisterAccountServiceServer(s, f)
	})
}

// ServeGRPC serves what register registers behind a socket until the test ends.
func (w *World) ServeGRPC(socket string, register func(*grpc.Server)) {
	l, s := bufconn.Listen(1<<20), grpc.NewServer()
	register(s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	w.T.Cleanup(func() { s.Stop(); wg.Wait() })
	w.Sockets[socket] = l
}

// Run executes a command and returns its exit code.
func (w *World) Run(args ...string) int { return w.RunCtx(w.T.Context(), args...) }

// RunCtx is Run with a context.
func (w *World) RunCtx(ctx context.Context, args ...string) int {
	w.Out.Reset()
	w.Errs.Reset()
	w.Env.Out = nil
	p := cli.Program()
	p.Commands = append(p.Commands, w.More...)
	return frame.Execute(ctx, args, w.Env, p)
}

// Transcript returns a run as a user would see it.
func (w *World) Transcript(args ...string) string {
	code := w.Run(args...)
	var b strings.Builder
	b.WriteString(strings.TrimSpace("$ berth "+jobcmd.QuoteCommand(args)) + "\n")
	io.WriteString(&b, w.Out.String())
	if w.Errs.Len() > 0 {
		b.WriteString("-- standard error\n" + w.Errs.String())
	}
	b.WriteString("-- exit code " + strconv.Itoa(code) + "\n")
	return b.String()
}
