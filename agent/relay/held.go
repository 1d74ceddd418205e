package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const (
	// ringBytes is how much output of a command is kept: what its user has not acknowledged,
	// and for a detached terminal the last of it.
	ringBytes = conv.KeepUnread
	// endLife is how long the end of a command is kept for a user who lost the connection.
	endLife = 5 * time.Minute
	// maxHeld bounds the kept commands of one user.
	maxHeld = 64
)

// part is a piece of a command's output.
type part struct {
	stderr bool
	data   []byte
}

// held is a command that survives its user's stream. Its output has a single order, in which
// every byte is numbered.
type held struct {
	id      string
	uid     uint32
	v       *Visit
	p       *runtime.Process
	command string
	term    bool
	request string // the id of the request that began it, "" from an older client
	q       *request
	keep    time.Duration
	began   time.Time

	mu sync.Mutex
	// news is closed and recreated when anything below changes.
	news chan struct{}
	// parts hold the output from byte first on; end is the number of the next byte, had how
	// many bytes the user has.
	parts            []part
	first, end, had  uint64
	owner            *attachedTo // the stream that it is attached to, nil when detached
	left             time.Time   // since when detached
	over             bool        // it has ended, and all of its output is here
	ended            *apiv1.AttachEnded
	lost             error // why its end is unknown
	inputHad, inputs uint64
	inputEnded       bool
	queue            [][]byte // input waiting to be written
	outputs          sync.WaitGroup
	exited           chan struct{}
	quit             <-chan struct{} // closed when the agent ends
	touch            func()
}

// attachedTo is one user's stream to a held command.
type attachedTo struct {
	ln   *link
	gone context.CancelCauseFunc
}

// changed wakes everything that waits for news. The caller holds h.mu.
func (h *held) changed() {
	close(h.news)
	h.news = make(chan struct{})
}

// hold makes p a kept command, and serves it until it has ended.
func (s *Server) hold(v *Visit, p *runtime.Process, x *runtime.Exec, keep time.Duration, q *request) (*held, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, h := range s.held {
		if h.uid == v.Launch.UID {
			n++
		}
	}
	if n >= maxHeld {
		return nil, cluster.Errorf(cluster.CodeExhausted, "node %s keeps %d sessions of yours, which is all that it may; end one first (berth shell --list)", v.Node, maxHeld)
	}
	h := &held{
		id: rand.Text()[:12], uid: v.Launch.UID, v: v, p: p, command: commandName(x), term: x.Terminal, keep: keep, began: time.Now(), left: time.Now(),
		news: make(chan struct{}), exited: make(chan struct{}), quit: s.ctx.Done(), touch: func() { s.touch(v) },
	}
	if h.q = q; q != nil {
		h.request = q.r.Id
	}
	s.held[h.id] = h
	s.serving.Go(func() {
		h.serve(s.ctx)
		s.forget(h)
	})
	return h, nil
}

// forget drops an ended command once its user knows, or after a while.
func (s *Server) forget(h *held) {
	deadline := time.NewTimer(endLife)
	defer deadline.Stop()
	for {
		h.mu.Lock()
		done, news := h.ended == nil && h.lost == nil, h.news
		told := h.had >= h.end+1 // its user has acknowledged the end as well
		h.mu.Unlock()
		if done || told {
			break
		}
		select {
		case <-news:
			continue
		case <-deadline.C:
		case <-s.ctx.Done():
		}
		break
	}
	s.mu.Lock()
	delete(s.held, h.id)
	s.mu.Unlock()
}

// serve transfers the command's input and output until it has ended, its time without a user is
// over, or ctx ends.
func (h *held) serve(ctx context.Context) {
	pctx, stop := context.WithCancel(ctx)
	defer stop()
	h.outputs.Go(func() { h.read(h.p.Stdout, false) })
	if h.p.Stderr != nil {
		h.outputs.Go(func() { h.read(h.p.Stderr, true) })
	}
	var writing sync.WaitGroup
	writing.Go(func() { h.write(pctx) })
	writing.Go(func() { h.expire(pctx) })
	end, err := h.p.Wait(ctx)
	close(h.exited)
	for _, f := range []*os.File{h.p.Stdout, h.p.Stderr} {
		if f != nil {
			_ = f.SetReadDeadline(time.Now().Add(drainIdle)) // it may be at its end
		}
	}
	h.mu.Lock()
	h.changed() // a reader that waits for space must see that it has ended
	h.mu.Unlock()
	h.outputs.Wait()
	stop()
	_ = h.p.Stdin.Close() // so that nothing waits for it to be read
	writing.Wait()
	if ctx.Err() == nil || err == nil {
		err = errors.Join(err, h.p.Close())
	}
	for _, f := range []*os.File{h.p.Stdin, h.p.Stdout, h.p.Stderr} {
		if f != nil {
			_ = f.Close() // nothing is buffered, and it may be closed already
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if h.lost = err; err == nil {
		h.ended = &apiv1.AttachEnded{Code: int32(end.Code), Signal: int32(end.Signal), WithJob: h.v.endedWith(context.WithoutCancel(ctx), end)}
		h.q.became(nodev1.RequestState_REQUEST_STATE_ENDED, h.ended)
	}
	h.changed()
}

// read reads the command's output. If more is pending than the ring holds, the command waits;
// for a detached terminal the oldest is dropped instead, so that what runs there continues.
func (h *held) read(f *os.File, stderr bool) {
	buf := make([]byte, apiconv.FrameData)
	for {
		if closed(h.exited) && f.SetReadDeadline(time.Now().Add(drainIdle)) != nil {
			return
		}
		n, err := f.Read(buf)
		if n > 0 && !h.put(part{stderr, buf[:n]}) {
			return
		}
		if err != nil { // end of file, EIO of a terminal that nothing has open, or the deadline
			return
		}
	}
}

// put adds output once there is space; false when there never will be.
func (h *held) put(p part) bool {
	for {
		h.mu.Lock()
		if h.end-h.first+uint64(len(p.data)) > ringBytes {
			h.drop(uint64(len(p.data)))
		}
		if h.end-h.first+uint64(len(p.data)) <= ringBytes {
			h.add(p)
			h.changed()
			h.mu.Unlock()
			return true
		}
		news, alone := h.news, closed(h.exited) && h.owner == nil
		h.mu.Unlock()
		if alone {
			// It has ended: its user may return for the rest for a while.
			select {
			case <-news:
			case <-time.After(h.keep):
				return false
			case <-h.quit:
				return false
			}
			continue
		}
		select {
		case <-news:
		case <-h.quit:
			return false
		}
	}
}

// add appends a copy of a piece of output. Pieces of single bytes are merged: with a buffer
// each, 256 KiB of output would take gigabytes. The caller holds h.mu.
func (h *held) add(p part) {
	h.end += uint64(len(p.data))
	if n := len(h.parts); n > 0 {
		last := &h.parts[n-1]
		if last.stderr == p.stderr && len(last.data)+len(p.data) <= apiconv.FrameData {
			last.data = append(last.data, p.data...) // after what others may be reading
			return
		}
	}
	h.parts = append(h.parts, part{p.stderr, bytes.Clone(p.data)})
}

// drop makes space for n bytes by dropping what the user has, or what a detached terminal
// wrote. The caller holds h.mu.
func (h *held) drop(n uint64) {
	for len(h.parts) > 0 && h.end-h.first+n > ringBytes {
		size := uint64(len(h.parts[0].data))
		if h.first+size > h.had && (!h.term || h.owner != nil) {
			return
		}
		h.parts, h.first = h.parts[1:], h.first+size
	}
	h.had = max(h.had, h.first)
}

// write passes input to the command, in order.
func (h *held) write(ctx context.Context) {
	broken := false
	for {
		h.mu.Lock()
		news := h.news
		var data []byte
		if len(h.queue) > 0 {
			data, h.queue = h.queue[0], h.queue[1:]
		}
		end := data == nil && h.inputEnded
		h.mu.Unlock()
		switch {
		case end && !h.term:
			_ = h.p.Stdin.Close() // nothing is buffered
			return
		case end:
			if !broken {
				_, _ = h.p.Stdin.Write([]byte(eot)) // it may have ended
			}
			return
		case data == nil:
			select {
			case <-ctx.Done():
				return
			case <-news:
			}
			continue
		case !broken:
			_, err := h.p.Stdin.Write(data)
			broken = err != nil // it no longer reads; the rest is discarded
		}
		h.mu.Lock()
		h.inputs += uint64(len(data))
		h.changed()
		h.mu.Unlock()
	}
}

// expire ends the command when no user returned within the time that it is kept.
func (h *held) expire(ctx context.Context) {
	for {
		h.mu.Lock()
		news, owned, left := h.news, h.owner != nil, h.left
		h.mu.Unlock()
		var timer <-chan time.Time
		if !owned {
			timer = time.After(time.Until(left.Add(h.keep)))
		}
		select {
		case <-ctx.Done():
			return
		case <-h.exited:
			return
		case <-news:
		case <-timer:
			_ = h.p.Close() // its end is awaited elsewhere
			return
		}
	}
}

func (h *held) view() *apiv1.Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := &apiv1.Session{
		Id: h.id, Job: uint64(h.v.Launch.ID.Job), Attempt: h.v.Launch.ID.No, Node: string(h.v.Node), Command: h.command, Terminal: h.term,
		Started: timestamppb.New(h.began), Attached: h.owner != nil,
	}
	if h.owner == nil {
		out.Left, out.Ends = timestamppb.New(h.left), timestamppb.New(h.left.Add(h.keep))
	}
	return out
}
