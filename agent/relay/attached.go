package relay

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

func commandName(x *runtime.Exec) string {
	if len(x.Args) > 0 {
		return filepath.Base(x.Args[0])
	}
	return "shell"
}

// errTaken ends the stream of a user whose session was taken over elsewhere.
var errTaken = errors.New("the session was taken up elsewhere")

// sessionsOf lists the sessions kept for a job, oldest first.
func (s *Server) sessionsOf(v *Visit) []*held {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*held
	for _, h := range s.held {
		if h.v.Launch.ID == v.Launch.ID {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b *held) int { return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.id, b.id)) })
	return out
}

func (s *Server) list(ln *link, v *Visit) error {
	all := &apiv1.Sessions{}
	for _, h := range s.sessionsOf(v) {
		if !h.isOver() {
			all.Sessions = append(all.Sessions, h.view())
		}
	}
	return errors.Join(ln.send(&apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Sessions{Sessions: all}}), ln.ended(&apiv1.AttachEnded{}))
}

func (h *held) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

// takeUp continues a session.
func (s *Server) takeUp(ctx context.Context, ln *link, v *Visit, ask *apiv1.AttachExec) error {
	var h *held
	for _, have := range s.sessionsOf(v) {
		if have.id == ask.GetSession() || ask.GetSession() == "last" && have.term && !have.isOver() {
			h = have
		}
	}
	switch {
	case h == nil && ask.GetSession() == "last":
		return cluster.Errorf(cluster.CodeNotFound, "job %s has no session on node %s that could be taken up; berth shell %s opens one", v.Launch.ID.Job, v.Node, v.Launch.ID.Job)
	case h == nil:
		return cluster.Errorf(cluster.CodeNotFound, "session %s of job %s is no longer on node %s: it has ended, or the node's agent was restarted", ask.GetSession(), v.Launch.ID.Job, v.Node)
	}
	s.log.InfoContext(ctx, "a user takes up a session", "uid", v.Ask.GetUid(), "owner", v.Launch.UID, "admin", v.Ask.GetAdmin(),
		"job", v.Launch.ID.Job.String(), "attempt", v.Launch.ID.No, "node", string(v.Node), "session", h.id, "command", h.command)
	if w := window(ask.GetWindow()); w.Rows > 0 && !h.isOver() {
		_ = h.p.Resize(ctx, w) // it may have ended
	}
	return h.attach(ctx, ln, ask.Received)
}

// attach serves one user's stream, beginning after the bytes that the user has, until the
// command ends or the user leaves.
func (h *held) attach(ctx context.Context, ln *link, received *uint64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	me := &attachedTo{ln, cancel}
	h.mu.Lock()
	if old := h.owner; old != nil {
		old.gone(errTaken)
	}
	at := h.first
	if received != nil {
		at = min(max(*received, h.first), h.end)
	}
	h.owner, h.had = me, max(h.had, min(at, h.end))
	had := h.inputHad
	h.changed()
	h.mu.Unlock()
	defer h.leave(me)
	err := ln.send(&apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Opened{Opened: &apiv1.AttachOpened{
		Attempt: h.v.Launch.ID.No, Node: string(h.v.Node), Session: h.id, Output: at, StdinHad: had,
	}}})
	if err == nil && received != nil && *received < at {
		err = ln.notice("%d bytes of output were not kept", at-*received)
	}
	if err != nil {
		return err
	}
	go h.listen(ctx, me) // ends with ctx, or the link's frames
	return h.tell(ctx, me, at)
}

// leave detaches the session, unless another user's stream has taken it over.
func (h *held) leave(me *attachedTo) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owner == me {
		h.owner, h.left = nil, time.Now()
		h.changed()
	}
}

// tell sends output from byte at on, how much input was consumed, and the end.
func (h *held) tell(ctx context.Context, me *attachedTo, at uint64) error {
	var taken uint64
	for {
		h.mu.Lock()
		news, data, stderr := h.news, []byte(nil), false
		at = max(at, h.first)
		if at < h.had+ringBytes {
			data, stderr = h.from(at)
		}
		inputs, over, ended, lost, all := h.inputs, h.over, h.ended, h.lost, at == h.end
		h.mu.Unlock()
		var err error
		switch {
		case data != nil:
			at += uint64(len(data))
			frame := stdoutFrame
			if stderr {
				frame = stderrFrame
			}
			err = me.ln.send(frame(data))
		case inputs != taken:
			taken = inputs
			err = me.ln.send(&apiv1.AttachResponse{Kind: &apiv1.AttachResponse_StdinTaken{StdinTaken: taken}})
		case over && all && lost != nil:
			return lost
		case over && all:
			return me.ln.ended(ended)
		default:
			select {
			case <-ctx.Done():
				if errors.Is(context.Cause(ctx), errTaken) {
					return errors.Join(me.ln.notice("the session was taken up elsewhere"), me.ln.ended(&apiv1.AttachEnded{Detached: true}))
				}
				if errors.Is(context.Cause(ctx), errDetached) {
					return me.ln.ended(&apiv1.AttachEnded{Detached: true})
				}
				return ctx.Err()
			case <-news:
			}
		}
		if err != nil {
			return err
		}
	}
}

// from returns the piece of output that begins at byte at. The caller holds h.mu.
func (h *held) from(at uint64) (data []byte, stderr bool) {
	begin := h.first
	for _, p := range h.parts {
		if n := uint64(len(p.data)); at < begin+n {
			return p.data[at-begin:], p.stderr
		}
		begin += uint64(len(p.data))
	}
	return nil, false
}

// errDetached ends the stream of a user who leaves the session.
var errDetached = errors.New("the user left")

// listen handles what the user sends.
func (h *held) listen(ctx context.Context, me *attachedTo) {
	for {
		m, ok := me.ln.next(ctx)
		if !ok {
			return
		}
		switch k := m.GetKind().(type) {
		case *apiv1.AttachRequest_Stdin:
			h.touch()
			h.takeInput(k.Stdin)
		case *apiv1.AttachRequest_StdinEnd:
			h.mu.Lock()
			h.inputEnded = true
			h.changed()
			h.mu.Unlock()
		case *apiv1.AttachRequest_Received:
			h.mu.Lock()
			h.had = max(h.had, min(k.Received, h.end+1)) // one more is the end itself
			h.changed()
			h.mu.Unlock()
		case *apiv1.AttachRequest_Resize:
			if w := window(k.Resize); w.Rows > 0 && w.Columns > 0 {
				_ = h.p.Resize(ctx, w) // it may have ended
			}
		case *apiv1.AttachRequest_Signal:
			if k.Signal > 0 && k.Signal <= maxSignal {
				_ = h.p.Signal(ctx, syscall.Signal(k.Signal)) // as above
			}
		case *apiv1.AttachRequest_Detach:
			if k.Detach.GetEnd() {
				go func() { _ = h.p.Close() }() // bounded by the hang-up's grace; its end is reported as any other
				continue
			}
			me.gone(errDetached)
			return
		}
	}
}

// LastInput returns when something was last typed in an attempt.
func (s *Server) LastInput(id cluster.AttemptID) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.typed[id]
}

// touch records that something was typed in an attempt, while it runs.
func (s *Server) touch(v *Visit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.typed[v.Launch.ID]; !known {
		s.serving.Go(func() {
			select {
			case <-v.Over:
			case <-s.ctx.Done():
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.typed, v.Launch.ID)
		})
	}
	s.typed[v.Launch.ID] = time.Now()
}

// Tell sends a text to all users in sessions of an attempt.
func (s *Server) Tell(id cluster.AttemptID, text string) {
	s.mu.Lock()
	var all []*held
	for _, h := range s.held {
		if h.v.Launch.ID == id {
			all = append(all, h)
		}
	}
	s.mu.Unlock()
	for _, h := range all {
		h.mu.Lock()
		me := h.owner
		h.mu.Unlock()
		if me != nil {
			go func() { _ = me.ln.notice("%s", text) }() // a slow user must not delay others; a broken link is noticed elsewhere
		}
	}
}

// takeInput queues input; a client that sends more at once than allowed loses it. Empty input
// is dropped: the bound counts bytes.
func (h *held) takeInput(data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(data) == 0 || h.inputEnded || len(data) > apiconv.MaxFrameData || h.inputHad-h.inputs > 2*apiconv.MaxFrameData {
		return
	}
	h.queue, h.inputHad = append(h.queue, data), h.inputHad+uint64(len(data))
	h.changed()
}
