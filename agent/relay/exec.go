package relay

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/agent/step"
	"github.com/berth-scheduler/berth/agent/tunnel"
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const (
	// stdinQueue is how many frames of input may wait for the command.
	stdinQueue = 64
	// drainIdle is how long output may pause after the command has ended: background processes
	// may keep its files open.
	drainIdle = time.Second
	// verdictWait is how long to wait, after a command was killed, for the news that its job
	// has ended.
	verdictWait = 2 * time.Second
	maxSignal   = 64
	// beginWait bounds the start of a command.
	beginWait = time.Minute
)

// exec runs a command, or the user's shell, inside a job.
func (s *Server) exec(ctx context.Context, ln *link, v *Visit, ask *apiv1.AttachExec) error {
	q, leave, err := s.once(ctx, v, ask.GetRequestId())
	if err != nil {
		return err
	}
	defer leave()
	if q != nil && q.known != nil {
		return s.again(ctx, ln, v, q)
	}
	ex, err := s.executor(ctx, v)
	if err != nil {
		return err
	}
	x := &runtime.Exec{
		Terminal: ask.GetTerminal(), Window: window(ask.GetWindow()), Own: ask.GetOwn(),
		Env: apiconv.Texts[string](ask.GetEnv()), Args: apiconv.Texts[string](ask.GetCommand()),
	}
	if x.Terminal && ask.GetTerm() != "" {
		x.Env = append(x.Env, "TERM="+ask.GetTerm())
	}
	if x.Own && (len(x.Args) == 0 || !slices.Contains(ownCommands, x.Args[0])) {
		return cluster.Errorf(cluster.CodeInvalid, "own: %q is no command for this", x.Args)
	}
	if err := q.intend(); err != nil {
		return err
	}
	s.audit(ctx, v, x)
	p, err := begin(ctx, ex, v, x, q)
	if le, ok := errors.AsType[*launch.Error](err); ok {
		return ln.failed(v, le)
	}
	if err != nil {
		return err
	}
	if keep := min(ask.GetKeep().AsDuration(), s.most); keep > 0 {
		h, err := s.hold(v, p, x, keep, q)
		if err != nil {
			return errors.Join(err, p.Close())
		}
		leave() // a repeated request takes it up
		return h.attach(ctx, ln, nil)
	}
	ss := &session{ln: ln, v: v, p: p, q: q, terminal: x.Terminal, exited: make(chan struct{})}
	defer ss.close()
	if err := ln.opened(v, "", 0); err != nil {
		return errors.Join(err, p.Close())
	}
	return ss.run(ctx)
}

// begin starts a command and records the outcome. A user who leaves meanwhile does not
// interrupt it, since then it would be unknown whether it had started.
func begin(ctx context.Context, ex runtime.Executor, v *Visit, x *runtime.Exec, q *request) (*runtime.Process, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beginWait)
	defer cancel()
	p, err := ex.Exec(ctx, v.Launch.ID, x)
	_, never := errors.AsType[*launch.Error](err)
	switch {
	case err == nil:
		q.became(nodev1.RequestState_REQUEST_STATE_DONE, nil)
	case never, errors.Is(err, runtime.ErrNotRunning):
		q.became(nodev1.RequestState_REQUEST_STATE_VOID, nil)
	} // after any other error it may have started
	return p, err
}

// ownCommands are Berth's own commands that users may run in a job.
var ownCommands = []string{step.Arg, hold.Arg, tunnel.Arg}

// awaitRuns waits until the attempt runs, or says why it does not.
func (s *Server) awaitRuns(ctx context.Context, v *Visit) error {
	if v.Runtime == nil {
		return cluster.Errorf(cluster.CodeConflict, "job %s does not run on node %s (any more)", v.Launch.ID.Job, v.Node)
	}
	timer := time.NewTimer(startWait)
	defer timer.Stop()
	select {
	case <-v.Runs:
	case <-timer.C:
		return cluster.Errorf(cluster.CodeConflict, "job %s is still being started on node %s; try again in a moment", v.Launch.ID.Job, v.Node)
	case <-ctx.Done():
		return ctx.Err()
	}
	if closed(v.Over) {
		return cluster.Errorf(cluster.CodeConflict, "job %s has ended on node %s", v.Launch.ID.Job, v.Node)
	}
	return nil
}

// executor waits until the attempt runs and returns the executor that can enter it.
func (s *Server) executor(ctx context.Context, v *Visit) (runtime.Executor, error) {
	if err := s.awaitRuns(ctx, v); err != nil {
		return nil, err
	}
	ex, ok := v.Runtime.(runtime.Executor)
	if !ok {
		return nil, cluster.Errorf(cluster.CodeConflict, "jobs on node %s cannot be entered: its runtime, %s, has no way to", v.Node, v.Runtime.Name())
	}
	return ex, nil
}

// audit logs who enters whose job. It omits arguments, which may contain secrets.
func (s *Server) audit(ctx context.Context, v *Visit, x *runtime.Exec) {
	what := "shell"
	if len(x.Args) > 0 {
		what = filepath.Base(x.Args[0])
	}
	s.log.InfoContext(ctx, "a user enters a job", "uid", v.Ask.GetUid(), "owner", v.Launch.UID, "admin", v.Ask.GetAdmin(),
		"job", v.Launch.ID.Job.String(), "attempt", v.Launch.ID.No, "node", string(v.Node), "command", what, "terminal", x.Terminal)
}

// failed reports a command that cannot run as a shell would.
func (l *link) failed(v *Visit, le *launch.Error) error {
	text := []byte("berth: " + le.Err.Error() + "\n")
	return errors.Join(l.opened(v, "", 0),
		l.send(&apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Stderr{Stderr: text}}),
		l.ended(&apiv1.AttachEnded{Code: int32(le.Code)}))
}

func window(w *apiv1.WindowSize) runtime.Window {
	if apiconv.CheckWindow(w) != nil {
		return runtime.Window{}
	}
	return runtime.Window{Rows: uint16(w.GetRows()), Columns: uint16(w.GetColumns())}
}

// session is a running command.
type session struct {
	ln       *link
	v        *Visit
	p        *runtime.Process
	q        *request
	terminal bool
	exited   chan struct{} // closed when the command has ended
}

// run transfers the command's input and output until it has ended and everything was sent, or
// the user has gone: then it ends the command.
func (ss *session) run(ctx context.Context) error {
	var outputs, inputs sync.WaitGroup
	outputs.Go(func() { ss.output(ss.p.Stdout, stdoutFrame) })
	if ss.p.Stderr != nil {
		outputs.Go(func() { ss.output(ss.p.Stderr, stderrFrame) })
	}
	ictx, stop := context.WithCancel(ctx)
	inputs.Go(func() { ss.input(ictx) })
	end, err := ss.p.Wait(ctx)
	if ctx.Err() != nil { // the user has gone
		err = errors.Join(ctx.Err(), ss.p.Close())
		if gone, werr := ss.p.Wait(context.WithoutCancel(ctx)); werr == nil && ss.q != nil {
			ss.q.became(nodev1.RequestState_REQUEST_STATE_ENDED, &apiv1.AttachEnded{Code: int32(gone.Code), Signal: int32(gone.Signal)})
		}
	} else if err == nil {
		ss.q.became(nodev1.RequestState_REQUEST_STATE_ENDED, &apiv1.AttachEnded{Code: int32(end.Code), Signal: int32(end.Signal)})
	}
	// A waiting reader waits no longer than this; see output.
	close(ss.exited)
	for _, f := range []*os.File{ss.p.Stdout, ss.p.Stderr} {
		if f != nil {
			_ = f.SetReadDeadline(time.Now().Add(drainIdle)) // it may be at its end
		}
	}
	outputs.Wait()
	stop()
	_ = ss.p.Stdin.Close() // so that nothing waits for it to be read
	inputs.Wait()
	if err = errors.Join(err, ss.p.Close()); err != nil {
		return err
	}
	return ss.ln.ended(&apiv1.AttachEnded{Code: int32(end.Code), Signal: int32(end.Signal), WithJob: ss.v.endedWith(ctx, end)})
}

// endedWith reports whether a command ended because its job did.
func (v *Visit) endedWith(ctx context.Context, end runtime.ProcessEnd) bool {
	if end.Signal != syscall.SIGKILL && end.Signal != syscall.SIGHUP {
		return closed(v.Over)
	}
	timer := time.NewTimer(verdictWait)
	defer timer.Stop()
	select {
	case <-v.Over:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (ss *session) close() {
	for _, f := range []*os.File{ss.p.Stdin, ss.p.Stdout, ss.p.Stderr} {
		if f != nil {
			_ = f.Close() // nothing is buffered, and it may be closed already
		}
	}
}

func stdoutFrame(b []byte) *apiv1.AttachResponse {
	return &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Stdout{Stdout: b}}
}

func stderrFrame(b []byte) *apiv1.AttachResponse {
	return &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Stderr{Stderr: b}}
}

// output sends what the command writes. If the user has gone, it still reads the rest, so that
// the command can finish.
func (ss *session) output(f *os.File, frame func([]byte) *apiv1.AttachResponse) {
	broken := false
	for {
		buf := make([]byte, apiconv.FrameData)
		if closed(ss.exited) && f.SetReadDeadline(time.Now().Add(drainIdle)) != nil {
			return
		}
		n, err := f.Read(buf)
		if n > 0 && !broken {
			broken = ss.ln.send(frame(buf[:n])) != nil
		}
		if err != nil { // end of file, EIO of a terminal that nothing has open, or the deadline
			return
		}
	}
}

// input passes the user's input to the command.
func (ss *session) input(ctx context.Context) {
	queue := make(chan []byte, stdinQueue)
	var writer sync.WaitGroup
	writer.Go(func() { ss.write(queue) })
	defer writer.Wait()
	ended := false
	defer func() {
		if !ended {
			close(queue)
		}
	}()
	for {
		m, ok := ss.ln.next(ctx)
		if !ok {
			return
		}
		switch k := m.GetKind().(type) {
		case *apiv1.AttachRequest_Stdin:
			if ended || len(k.Stdin) > apiconv.MaxFrameData {
				continue
			}
			select {
			case queue <- k.Stdin:
			case <-ctx.Done():
				return
			}
		case *apiv1.AttachRequest_StdinEnd:
			if !ended {
				ended = true
				close(queue)
			}
		case *apiv1.AttachRequest_Resize:
			if w := window(k.Resize); w.Rows > 0 && w.Columns > 0 {
				_ = ss.p.Resize(ctx, w) // it may have ended
			}
		case *apiv1.AttachRequest_Signal:
			if k.Signal > 0 && k.Signal <= maxSignal {
				_ = ss.p.Signal(ctx, syscall.Signal(k.Signal)) // as above
			}
		}
	}
}

// eot is what a terminal interprets as end of input at the start of a line.
const eot = "\x04"

// write writes the queue to the command and reports how far it got.
func (ss *session) write(queue <-chan []byte) {
	var taken uint64
	broken := false
	for data := range queue {
		if !broken {
			_, err := ss.p.Stdin.Write(data)
			broken = err != nil // it no longer reads; the rest is discarded
		}
		taken += uint64(len(data))
		_ = ss.ln.send(&apiv1.AttachResponse{Kind: &apiv1.AttachResponse_StdinTaken{StdinTaken: taken}}) // a broken link is noticed elsewhere
	}
	if !ss.terminal {
		_ = ss.p.Stdin.Close() // nothing is buffered
	} else if !broken && !closed(ss.exited) {
		_, _ = ss.p.Stdin.Write([]byte(eot)) // it may have ended
	}
}
