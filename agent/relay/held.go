package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"sync"
	"syscall"
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
	// ringBytes is how much output of a command is kept: what its user has not
	// said to have, and for a terminal that nobody looks at the last of it.
	ringBytes = conv.KeepUnread
	// endLife is how long the end of a command is kept for a user who lost the
	// connection.
	endLife = 5 * time.Minute
	// maxHeld bounds the commands of one user that are kept.
	maxHeld = 64
)

// part is a piece of a command's output.
type part struct {
	stderr bool
	data   []byte
}

// held is a command that outlives the stream of its user. Its output has one
// order, in which every byte has a number.
type held struct {
	id      string
	uid     uint32
	v       *Visit
	p       *runtime.Process
	command string
	term    bool
	request string // the id of the one that began it, "" of an older client's
	q       *request
	keep    time.Duration
	began   time.Time

	mu sync.Mutex
	// news is closed and made anew when anything below changes.
	news chan struct{}
	// parts hold the output from byte first on; end is the number of the next
	// byte, had how many the user has.
	parts            []part
	first, end, had  uint64
	owner            *attachedTo // whose stream it is, nil when nobody's
	left             time.Time   // since when nobody's
	over             bool        // it has ended, and all of its output is here
	ended            *apiv1.AttachEnded
	lost             error // why its end is not known
	inputHad, inputs uint64
	inputEnded       bool
	queue            [][]byte // of input that waits to be written
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

// changed wakes all who wait for news. The caller holds h.mu.
func (h *held) changed() {
	close(h.news)
	h.news = make(chan struct{})
}

// hold makes p a command that is kept, and serves it until it has ended.
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

// forget drops a command that has ended once its user knows, or after a while.
func (s *Server) forget(h *held) {
	deadline := time.NewTimer(endLife)
	defer deadline.Stop()
	for {
		h.mu.Lock()
		done, news := h.ended == nil && h.lost == nil, h.news
		told := h.had >= h.end+1 // its user has said to have the end as well
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

// serve carries what the command reads and writes until it has ended, its time
// without a user is over, or ctx ends.
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
			_ = f.SetReadDeadline(time.Now().Add(drainIdle)) // it may have come to its end
		}
	}
	h.mu.Lock()
	h.changed() // a reader that waits for room must see that it has ended
	h.mu.Unlock()
	h.outputs.Wait()
	stop()
	_ = h.p.Stdin.Close() // so that nobody waits for it to be read
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
		h.ended = &apiv1.AttachEnded{Code: int32(end.Code), Signal: int32(end.Signal), WithJob: h.withJob(end)}
		h.q.became(nodev1.RequestState_REQUEST_STATE_ENDED, h.ended)
	}
	h.changed()
}

func (h *held) withJob(end runtime.ProcessEnd) bool {
	if end.Signal != syscall.SIGKILL && end.Signal != syscall.SIGHUP {
		return closed(h.v.Over)
	}
	timer := time.NewTimer(verdictWait)
	defer timer.Stop()
	select {
	case <-h.v.Over:
		return true
	case <-timer.C:
		return false
	}
}

// read takes what the command writes. While more of it is on the way than the
// ring holds the command waits; of a terminal that nobody looks at the oldest is
// dropped instead, so that what runs there goes on.
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
		if err != nil { // the end, EIO of a terminal that nobody has open, or the deadline
			return
		}
	}
}

// put adds output once there is room; false when nobody will ever make some.
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
			// It has ended: its user may come back for the rest for a while.
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

// add keeps a copy of a piece of output. What is written a byte at a time lies together: each of
// these in a buffer of its own would have 256 KiB of output take gigabytes. The caller
// holds h.mu.
func (h *held) add(p part) {
	h.end += uint64(len(p.data))
	if n := len(h.parts); n > 0 {
		last := &h.parts[n-1]
		if last.stderr == p.stderr && len(last.data)+len(p.data) <= apiconv.FrameData {
			last.data = append(last.data, p.data...) // behind what others may be reading
			return
		}
	}
	h.parts = append(h.parts, part{p.stderr, bytes.Clone(p.data)})
}

// drop makes room for n bytes of what the user has, or of what nobody looks at.
// The caller holds h.mu.
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

// write gives the command its input, in order.
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
			broken = err != nil // it reads no more; the rest is thrown away
		}
		h.mu.Lock()
		h.inputs += uint64(len(data))
		h.changed()
		h.mu.Unlock()
	}
}

// expire ends the command when nobody came for it for as long as it is kept.
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
			_ = h.p.Close() // its end is waited for elsewhere
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
