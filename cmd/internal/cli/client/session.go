package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// ackEvery is how many bytes of output are read before the node is told.
const ackEvery = 32 << 10

// Session is a command inside a job that its node keeps alive when the
// connection breaks: it is resumed where it was, and no byte of input or
// output is lost or duplicated. One goroutine may receive while others send.
type Session struct {
	c    *Client
	ctx  context.Context
	open *apiv1.AttachOpen
	// patience is how long to keep trying after the connection broke.
	patience time.Duration
	// onBreak and onResume are told of a break; they may be nil.
	onBreak  func(error)
	onResume func()

	// sending is held while a frame is sent, and while the stream is replaced.
	sending sync.Mutex
	a       *Attachment
	// unsure holds bytes of input that the node may not have; sent is how many
	// were sent in all, taken how many the command was given.
	unsure      []byte
	sent, taken uint64
	inputEnded  bool
	window      *apiv1.WindowSize
	room        chan struct{}

	id              string
	received, acked uint64
}

// SessionConfig says how a Session behaves.
type SessionConfig struct {
	// Keep is how long the node keeps the command while no client is connected,
	// Patience how long this end tries to reconnect.
	Keep, Patience time.Duration
	// OnBreak is told why the connection broke, OnResume that it is back.
	OnBreak  func(error)
	OnResume func()
}

// OpenSession begins or resumes what open says. A command that it begins runs
// once, even if the answer is lost.
func (c *Client) OpenSession(ctx context.Context, cfg SessionConfig, open *apiv1.AttachOpen) (*Session, error) {
	open = proto.CloneOf(open)
	s := &Session{c: c, ctx: ctx, open: open, patience: cfg.Patience, onBreak: cfg.OnBreak, onResume: cfg.OnResume, room: make(chan struct{}, 1)}
	x := open.GetExec()
	x.Keep, s.window = durationpb.New(cfg.Keep), x.GetWindow()
	eff := effect(Changes)
	if x.GetSession() != "" {
		eff = Reads
	} else {
		x.RequestId = c.env.RequestID()
	}
	patience := min(AttachPatience, c.Timeout)
	deadline := time.Now().Add(patience)
	for pause := FirstWait; ; pause = min(2*pause, mostWait) {
		a, err := c.Attach(ctx, eff, patience, open)
		if err != nil {
			return nil, err
		}
		var ce *cluster.Error
		if err = s.begin(a); err == nil {
			return s, nil
		}
		if !errors.As(err, &ce) || !Indefinite(ce) || time.Now().After(deadline) || eff == Changes && !askAgain(open) || !wait.Sleep(ctx, pause) {
			return nil, err
		}
	}
}

// begin receives the first frame of a stream, which gives its position.
func (s *Session) begin(a *Attachment) error {
	m, err := a.Recv()
	for err == nil && m.GetKind() == nil { // a heartbeat
		m, err = a.Recv()
	}
	if err != nil {
		a.Close()
		return err
	}
	o := m.GetOpened()
	if o == nil {
		a.Close()
		return &cluster.Error{Code: cluster.CodeConflict, Msg: "the node's agent did not say what it opened"}
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	s.a, s.id = a, o.GetSession()
	s.received, s.acked = o.GetOutput(), o.GetOutput()
	if s.sent == 0 {
		s.sent, s.taken = o.GetStdinHad(), o.GetStdinHad() // from an earlier client
	}
	// What the node has received need not be sent again.
	if had := o.GetStdinHad(); had <= s.sent && s.sent-had <= uint64(len(s.unsure)) {
		s.unsure = s.unsure[uint64(len(s.unsure))-(s.sent-had):]
	}
	for rest := s.unsure; len(rest) > 0; {
		n := min(len(rest), apiconv.FrameData)
		if s.put(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Stdin{Stdin: rest[:n]}}) != nil {
			return nil // it broke again; Recv reports that
		}
		rest = rest[n:]
	}
	if s.inputEnded {
		_ = s.put(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_StdinEnd{StdinEnd: &apiv1.StdinEnd{}}}) // as above
	}
	if s.window != nil {
		_ = s.put(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Resize{Resize: s.window}}) // as above
	}
	return nil
}

// put sends a frame on the current stream. The caller holds s.sending.
func (s *Session) put(m *apiv1.AttachRequest) error { return s.a.stream.Send(m) }

// ID returns the session's name on its node, "" where nodes keep none.
func (s *Session) ID() string { return s.id }

// Recv returns the next frame of the command: output, a notice or its end.
// When the connection breaks it waits until there is another one.
func (s *Session) Recv() (*apiv1.AttachResponse, error) {
	for {
		s.sending.Lock()
		a := s.a
		s.sending.Unlock()
		m, err := a.Recv()
		if err != nil {
			var ce *cluster.Error
			if s.ctx.Err() != nil {
				return nil, context.Cause(s.ctx)
			}
			if s.id == "" || !errors.As(err, &ce) || !Indefinite(ce) {
				return nil, err
			}
			if err := s.resume(err); err != nil {
				return nil, err
			}
			continue
		}
		switch k := m.GetKind().(type) {
		case *apiv1.AttachResponse_Stdout:
			s.took(len(k.Stdout))
		case *apiv1.AttachResponse_Stderr:
			s.took(len(k.Stderr))
		case *apiv1.AttachResponse_StdinTaken:
			s.takenTo(k.StdinTaken)
			continue
		case *apiv1.AttachResponse_Ended:
			s.ack(s.received + 1) // so that the node can discard it
		}
		return m, nil
	}
}

// resume reconnects the session.
func (s *Session) resume(why error) error {
	if s.onBreak != nil {
		s.onBreak(why)
	}
	s.sending.Lock()
	s.a.Close()
	s.sending.Unlock()
	open := &apiv1.AttachOpen{Job: s.open.GetJob(), Attempt: s.open.GetAttempt(), Node: s.open.GetNode(), What: &apiv1.AttachOpen_Exec{Exec: &apiv1.AttachExec{
		Session: s.id, Received: new(s.received), Window: s.window,
	}}}
	deadline := time.Now().Add(s.patience)
	for pause := FirstWait; ; pause = min(2*pause, mostWait) {
		a, err := s.c.Attach(s.ctx, Reads, max(0, time.Until(deadline)), open)
		if err == nil {
			err = s.begin(a)
		}
		var ce *cluster.Error
		switch {
		case err == nil:
			if s.onResume != nil {
				s.onResume()
			}
			return nil
		case s.ctx.Err() != nil:
			return context.Cause(s.ctx)
		case !errors.As(err, &ce) || !Indefinite(ce) || time.Now().After(deadline):
			return err
		}
		if !wait.Sleep(s.ctx, pause) {
			return context.Cause(s.ctx)
		}
	}
}

func (s *Session) took(n int) {
	if s.received += uint64(n); s.received-s.acked >= ackEvery {
		s.ack(s.received)
	}
}

func (s *Session) ack(n uint64) {
	if s.id == "" {
		return
	}
	s.acked = s.received
	s.send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Received{Received: n}})
}

// send sends one frame; the receiver learns of a broken stream.
func (s *Session) send(m *apiv1.AttachRequest) {
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.put(m)
}

func (s *Session) takenTo(n uint64) {
	s.sending.Lock()
	if n > s.taken && n <= s.sent {
		s.taken = n
		if keep := s.sent - n; keep < uint64(len(s.unsure)) {
			s.unsure = append([]byte(nil), s.unsure[uint64(len(s.unsure))-keep:]...)
		}
	}
	s.sending.Unlock()
	wait.Poke(s.room)
}

// Write gives the command input, as fast as the command reads it.
func (s *Session) Write(data []byte) (int, error) {
	total := len(data)
	for len(data) > 0 {
		n := min(len(data), apiconv.FrameData)
		s.sending.Lock()
		if s.sent-s.taken+uint64(n) > apiconv.MaxFrameData {
			s.sending.Unlock()
			select {
			case <-s.ctx.Done():
				return total - len(data), context.Cause(s.ctx)
			case <-s.room:
			}
			continue
		}
		part := append([]byte(nil), data[:n]...)
		s.unsure, s.sent = append(s.unsure, part...), s.sent+uint64(n)
		_ = s.put(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Stdin{Stdin: part}}) // Recv repairs a broken stream
		s.sending.Unlock()
		data = data[n:]
	}
	return total, nil
}

// CloseInput signals the end of the input.
func (s *Session) CloseInput() {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.inputEnded = true
	_ = s.put(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_StdinEnd{StdinEnd: &apiv1.StdinEnd{}}}) // as in Write
}

// Signal forwards a signal, ahead of input.
func (s *Session) Signal(sig syscall.Signal) {
	s.send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Signal{Signal: uint32(sig)}})
}

// Resize reports the size of the terminal.
func (s *Session) Resize(w *apiv1.WindowSize) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.window = w
	_ = s.put(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Resize{Resize: w}}) // as in Write
}

// Detach leaves the command, which continues for as long as it is kept.
func (s *Session) Detach() {
	s.send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Detach{Detach: &apiv1.Detach{}}})
}

// End ends the command; Recv returns its end.
func (s *Session) End() {
	s.send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Detach{Detach: &apiv1.Detach{End: true}}})
}

// Close closes the connection.
func (s *Session) Close() {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.a.Close()
}

// Output returns what the command writes to standard output, for callers that
// read nothing else of it: notices and standard error go to other.
func (s *Session) Output(other func(*apiv1.AttachResponse)) io.Reader {
	return &sessionReader{s: s, other: other}
}

type sessionReader struct {
	s     *Session
	other func(*apiv1.AttachResponse)
	rest  []byte
}

// Read implements io.Reader; it returns io.EOF when the command ends.
func (r *sessionReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		m, err := r.s.Recv()
		if err != nil {
			return 0, err
		}
		switch k := m.GetKind().(type) {
		case *apiv1.AttachResponse_Stdout:
			r.rest = k.Stdout
		case *apiv1.AttachResponse_Ended:
			r.other(m)
			return 0, io.EOF
		default:
			r.other(m)
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
