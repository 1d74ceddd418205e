package enter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/tty"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const (
	// patienceSignals is how many signals a user sends to a command that does
	// not end before this program ends without it.
	patienceSignals = 3
	// comeBack is how long a broken connection to a kept command is retried.
	comeBack = 10 * time.Minute
)

// InsideJob is a command that runs in a job, seen from the user's side.
type InsideJob struct {
	Open    *apiv1.AttachOpen
	NoInput bool
	// Keep is how long the node keeps the command when the connection breaks; 0
	// ends it. A user may only leave it by a key if it is kept.
	Keep time.Duration

	e    *console.Env
	s    *client.Session
	ctx  context.Context // the stream's; ends with run
	stop context.CancelCauseFunc
}

// ErrLeft reports that the user left a command that continues.
var ErrLeft = errors.New("the user left")

// runInJob runs what in.Open says and ends as that does: an *ExitError has
// the command's code.
func runInJob(ctx context.Context, e *console.Env, c *client.Client, in *InsideJob) error {
	ended, err := in.Run(ctx, e, c)
	switch {
	case errors.Is(err, ErrLeft):
		e.Warnf("detached from session %s of job %d, which continues; reattach with: berth shell %[2]d", in.s.ID(), in.Open.GetJob())
		return nil
	case err != nil:
		return err
	case ended.GetWithJob():
		e.Warnf("job %d has ended, and the command with it", in.Open.GetJob())
	}
	if ended.GetCode() != 0 {
		return &console.ExitError{Code: int(ended.GetCode())}
	}
	return nil
}

// Run runs the command at this terminal, or with these files, and returns how
// it ended; ErrLeft if it did not and the user left it.
func (in *InsideJob) Run(ctx context.Context, e *console.Env, c *client.Client) (*apiv1.AttachEnded, error) {
	in.e = e
	// An interrupt goes to the command once there is one.
	sctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	in.ctx, in.stop = sctx, stop
	mine := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
	if in.terminal() {
		in.Open.GetExec().Window = in.window()
	}
	if err := e.Flush(); err != nil {
		return nil, err
	}
	s, err := c.OpenSession(sctx, client.SessionConfig{Keep: in.Keep, Patience: comeBack, OnBreak: in.broke, OnResume: in.resumed}, in.Open)
	if !mine() || err != nil {
		if s != nil {
			s.Close()
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	defer s.Close()
	in.s = s
	restore, err := in.raw()
	if err != nil {
		return nil, err
	}
	ended, err := in.run()
	restore()
	switch {
	case err != nil:
		return nil, in.explain(err)
	case ended.GetDetached():
		return nil, ErrLeft
	}
	return ended, nil
}

// line prints a message while the terminal is in raw mode.
func (in *InsideJob) line(format string, args ...any) {
	end := ""
	if in.terminal() {
		fmt.Fprint(in.e.Stderr, "\r\n")
		end = "\r"
	}
	in.e.Warnf(format+end, args...)
}

func (in *InsideJob) broke(err error) {
	in.line("the connection to job %d broke (%s); retrying for %s", in.Open.GetJob(), console.Escape(err.Error()), comeBack)
}

func (in *InsideJob) resumed() { in.line("connected again") }

// explain says what a broken stream means.
func (in *InsideJob) explain(err error) error {
	if cause := context.Cause(in.ctx); cause != nil {
		return cause
	}
	var ce *cluster.Error
	if !errors.As(err, &ce) || !client.Indefinite(ce) {
		return err
	}
	if in.s.ID() != "" {
		return cluster.Errorf(cluster.CodeUnknown, "the connection to job %d is lost: %s\nIts session %s is kept for a while; reattach with: berth shell %[1]d", in.Open.GetJob(), ce.Msg, in.s.ID())
	}
	return cluster.Errorf(cluster.CodeUnknown, "the command in job %d lost its connection and was ended: %s", in.Open.GetJob(), ce.Msg)
}

func (in *InsideJob) terminal() bool { return in.Open.GetExec().GetTerminal() }

// raw puts the user's terminal into raw mode; restore undoes it.
func (in *InsideJob) raw() (restore func(), err error) {
	f, is := in.e.StdinTerminal()
	if !in.terminal() || !is || in.NoInput {
		return func() {}, nil
	}
	if restore, err = tty.Raw(f); err != nil {
		return nil, fmt.Errorf("set up the terminal: %w", err)
	}
	return restore, nil
}

// window returns the size of the user's terminal; nil if there is none.
func (in *InsideJob) window() *apiv1.WindowSize {
	for _, f := range []any{in.e.Stdin, in.e.Stdout} {
		if f, ok := f.(*os.File); ok {
			if w, h, err := tty.Size(f); err == nil && w > 0 && h > 0 {
				return &apiv1.WindowSize{Rows: uint32(h), Columns: uint32(w)}
			}
		}
	}
	return nil
}

// run carries data both ways until the command has ended. The goroutine that
// reads standard input may stay behind: nothing can end that read.
func (in *InsideJob) run() (*apiv1.AttachEnded, error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
	defer signal.Stop(signals)
	var passing sync.WaitGroup
	done := make(chan struct{})
	defer passing.Wait()
	defer close(done)
	passing.Go(func() { in.signals(signals, done) })
	if in.NoInput {
		in.s.CloseInput()
	} else {
		go in.input()
	}
	for {
		m, err := in.s.Recv()
		if err != nil {
			return nil, err
		}
		switch k := m.GetKind().(type) {
		case *apiv1.AttachResponse_Stdout:
			_, err = in.e.Stdout.Write(k.Stdout)
		case *apiv1.AttachResponse_Stderr:
			_, err = in.e.Stderr.Write(k.Stderr)
		case *apiv1.AttachResponse_Notice:
			in.line("%s", console.Escape(k.Notice))
		case *apiv1.AttachResponse_Ended:
			return k.Ended, nil
		}
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
			in.s.End()
			return nil, console.ErrQuiet // as for any program in a pipe, the command ends
		}
		if err != nil {
			return nil, fmt.Errorf("write the command's output: %w", err)
		}
	}
}

// input passes on standard input, as fast as the command reads it.
func (in *InsideJob) input() {
	buf, keys := make([]byte, apiconv.FrameData), escapes{on: in.terminal() && in.Keep > 0, fresh: true}
	for {
		n, err := in.e.Stdin.Read(buf)
		data, leave := keys.pass(buf[:n])
		if len(data) > 0 {
			if _, err := in.s.Write(data); err != nil {
				return
			}
		}
		if leave {
			in.s.Detach()
			return
		}
		if err != nil {
			in.s.CloseInput()
			return
		}
	}
}

// escapes finds ~d at the beginning of a line, by which a user leaves; ~~ is
// one ~, as in ssh.
type escapes struct {
	on, fresh, tilde bool
}

// pass returns the part of data that is for the command, and whether the user leaves.
func (k *escapes) pass(data []byte) (out []byte, leave bool) {
	if !k.on {
		return data, false
	}
	out = make([]byte, 0, len(data)+1)
	for _, b := range data {
		switch {
		case k.tilde && b == 'd':
			return out, true
		case k.tilde && b == '~':
			k.tilde, k.fresh = false, false
			out = append(out, b)
			continue
		case k.tilde:
			out = append(out, '~')
		case k.fresh && b == '~':
			k.tilde, k.fresh = true, false
			continue
		}
		k.tilde, k.fresh = false, b == '\r' || b == '\n'
		out = append(out, b)
	}
	return out, false
}

// signals forwards the signals sent to this program.
func (in *InsideJob) signals(from <-chan os.Signal, done <-chan struct{}) {
	left := patienceSignals
	for {
		select {
		case <-done:
			return
		case s := <-from:
			sig, ok := s.(syscall.Signal)
			switch {
			case !ok:
			case sig == syscall.SIGWINCH:
				if w := in.window(); w != nil && in.terminal() {
					in.s.Resize(w)
				}
			case sig == syscall.SIGHUP: // our terminal is gone, and with it an unkept command
				in.stop(&console.Interruption{Sig: sig})
			default:
				in.s.Signal(sig)
				if sig == syscall.SIGUSR1 || sig == syscall.SIGUSR2 {
					continue
				}
				if left--; left == 0 {
					in.stop(&console.Interruption{Sig: sig})
				}
			}
		}
	}
}
