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

	"golang.org/x/term"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	// patienceSignals is how many signals a user sends to a command that does
	// not end before the program ends without it.
	patienceSignals = 3
)

// insideJob is a command that runs in a job, seen from the user's side.
type insideJob struct {
	open    *apiv1.AttachOpen
	noInput bool

	e    *console.Env
	a    *client.Attachment
	ctx  context.Context // of the stream; ends with run
	stop context.CancelCauseFunc
	// sending is held while a frame is sent.
	sending sync.Mutex
	// onWay is how many bytes of input the command has not taken yet; room gets
	// a token when that becomes less.
	mu    sync.Mutex
	sent  uint64
	taken uint64
	room  chan struct{}
}

// runInJob runs what in.open says and ends as that does: an *ExitError has the
// command's code.
func runInJob(ctx context.Context, e *console.Env, c *client.Client, in *insideJob) error {
	in.e, in.room = e, make(chan struct{}, 1)
	// An interrupt is the command's once there is one.
	sctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	in.ctx, in.stop = sctx, stop
	mine := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
	if in.terminal() {
		in.open.GetExec().Window = in.window()
	}
	a, err := c.Attach(sctx, client.Changes, min(client.AttachPatience, c.Timeout), in.open)
	if !mine() || err != nil {
		if a != nil {
			a.Close()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	defer a.Close()
	in.a = a
	if err := e.Flush(); err != nil {
		return err
	}
	restore, err := in.raw()
	if err != nil {
		return err
	}
	ended, err := in.run()
	restore()
	if err != nil {
		return in.explain(err)
	}
	if ended.GetWithJob() {
		e.Warnf("job %d has ended, and the command with it", in.open.GetJob())
	}
	if ended.GetCode() != 0 {
		return &console.ExitError{Code: int(ended.GetCode())}
	}
	return nil
}

// explain says what a broken stream means.
func (in *insideJob) explain(err error) error {
	if cause := context.Cause(in.ctx); cause != nil {
		return cause
	}
	var ce *cluster.Error
	if errors.As(err, &ce) && client.Indefinite(ce) {
		return cluster.Errorf(cluster.CodeUnknown, "the command in job %d lost its connection and is ended: %s", in.open.GetJob(), ce.Msg)
	}
	return err
}

func (in *insideJob) terminal() bool { return in.open.GetExec().GetTerminal() }

// raw has the user's terminal pass on every key; the function undoes it.
func (in *insideJob) raw() (restore func(), err error) {
	f, is := in.e.StdinTerminal()
	if !in.terminal() || !is || in.noInput {
		return func() {}, nil
	}
	state, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("set up the terminal: %w", err)
	}
	return func() { _ = term.Restore(int(f.Fd()), state) }, nil // there is nothing else to try
}

// window is the size of the user's terminal; nil when there is none.
func (in *insideJob) window() *apiv1.WindowSize {
	for _, f := range []any{in.e.Stdin, in.e.Stdout} {
		if f, ok := f.(*os.File); ok {
			if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
				return &apiv1.WindowSize{Rows: uint32(h), Columns: uint32(w)}
			}
		}
	}
	return nil
}

// run carries everything both ways until the command has ended. The goroutine
// that reads standard input may stay behind: nothing can end that read.
func (in *insideJob) run() (*apiv1.AttachEnded, error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
	defer signal.Stop(signals)
	var passing sync.WaitGroup
	done := make(chan struct{})
	defer passing.Wait()
	defer close(done)
	passing.Go(func() { in.signals(signals, done) })
	if in.noInput {
		in.send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_StdinEnd{StdinEnd: &apiv1.StdinEnd{}}})
	} else {
		go in.input()
	}
	for {
		m, err := in.a.Recv()
		if err != nil {
			return nil, err
		}
		switch k := m.GetKind().(type) {
		case *apiv1.AttachResponse_Stdout:
			_, err = in.e.Stdout.Write(k.Stdout)
		case *apiv1.AttachResponse_Stderr:
			_, err = in.e.Stderr.Write(k.Stderr)
		case *apiv1.AttachResponse_StdinTaken:
			in.took(k.StdinTaken)
		case *apiv1.AttachResponse_Notice:
			in.e.Warnf("%s", console.Escape(k.Notice))
		case *apiv1.AttachResponse_Ended:
			return k.Ended, nil
		}
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
			return nil, console.ErrQuiet // as for any program in a pipe, its command ends
		}
		if err != nil {
			return nil, fmt.Errorf("write the command's output: %w", err)
		}
	}
}

// send sends one frame; who receives learns of a stream that broke.
func (in *insideJob) send(m *apiv1.AttachRequest) bool {
	in.sending.Lock()
	defer in.sending.Unlock()
	return in.a.Stream.Send(m) == nil
}

// input passes on standard input, as fast as the command takes it.
func (in *insideJob) input() {
	buf := make([]byte, conv.FrameData)
	for {
		n, err := in.e.Stdin.Read(buf)
		if n > 0 {
			if !in.await(uint64(n)) {
				return
			}
			data := append([]byte(nil), buf[:n]...)
			if !in.send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Stdin{Stdin: data}}) {
				return
			}
		}
		if err != nil {
			in.send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_StdinEnd{StdinEnd: &apiv1.StdinEnd{}}})
			return
		}
	}
}

// await waits until n more bytes may be on the way.
func (in *insideJob) await(n uint64) bool {
	for {
		in.mu.Lock()
		fits := in.sent-in.taken+n <= conv.MaxFrameData
		if fits {
			in.sent += n
		}
		in.mu.Unlock()
		if fits {
			return true
		}
		select {
		case <-in.ctx.Done():
			return false
		case <-in.room:
		}
	}
}

func (in *insideJob) took(taken uint64) {
	in.mu.Lock()
	in.taken = max(in.taken, min(taken, in.sent))
	in.mu.Unlock()
	select {
	case in.room <- struct{}{}:
	default:
	}
}

// signals passes on what the user sends to this program.
func (in *insideJob) signals(from <-chan os.Signal, done <-chan struct{}) {
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
					in.send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Resize{Resize: w}})
				}
			case sig == syscall.SIGHUP: // our terminal is gone, and the command's with it
				in.stop(&console.Interruption{Sig: sig})
			default:
				in.send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Signal{Signal: uint32(sig)}})
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
