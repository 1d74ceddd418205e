package link

import (
	"context"
	"encoding/binary"
	"io"
)

// streamWindow is how many bytes may be unread in one stream; the server may
// send more once half of it was read.
const streamWindow = 256 << 10

// Stream is a streaming call, with a connection of its own, which ends with
// its context. One goroutine may send while another receives.
type Stream struct {
	ctx  context.Context
	conn *Conn
	k    *call
	stop func() bool
	over chan struct{} // closed when nothing more is read

	msg    []byte // a partial message
	unsaid int    // bytes that were read but not reported to the server
}

// Stream begins a streaming call.
func (c *Conn) Stream(ctx context.Context, method string) (*Stream, error) {
	l, err := c.connect(ctx, streamWindow)
	if err != nil {
		return nil, failed(ctx, err)
	}
	k := l.begin(c.Most)
	k.inline = false
	s := &Stream{ctx: ctx, conn: c, k: k, over: make(chan struct{})}
	c.Sent()
	if err := k.open(ctx, method, c.Header, nil); err != nil {
		l.close()
		return nil, failed(ctx, err)
	}
	s.stop = context.AfterFunc(ctx, l.close)
	go s.read()
	return s, nil
}

// read reads until the call or its context has ended, and then closes the connection.
func (s *Stream) read() {
	defer close(s.over)
	defer s.stop()
	defer s.k.link.close()
	var err error
	for err == nil && !s.k.ended { // only this goroutine sets it
		err = s.k.link.step(s.k)
	}
	if s.k.refused {
		s.conn.Unsent()
	}
	s.k.link.mu.Lock()
	defer s.k.link.mu.Unlock()
	if !s.k.ended {
		s.k.err = failed(s.ctx, err)
	}
	s.k.changed.Broadcast()
}

// Send sends an encoded message, which begins with Head bytes that are
// reserved for gRPC. It blocks while the server accepts none. io.EOF means
// that the call has ended; Recv says why.
func (s *Stream) Send(data []byte) error { return s.sent(s.k.send(nil, framed(data), false)) }

// CloseSend signals that nothing more will be sent.
func (s *Stream) CloseSend() error { return s.sent(s.k.send(nil, nil, true)) }

// sent turns an error into the end of the call.
func (s *Stream) sent(err error) error {
	if err != nil {
		return io.EOF // the server's last words may still be readable
	}
	return nil
}

// Recv receives an encoded message, which the caller owns; io.EOF when the
// call has ended well.
func (s *Stream) Recv() ([]byte, error) {
	for {
		if len(s.msg) >= Head {
			n, err := s.k.length(s.msg)
			if err != nil {
				s.Break()
				return nil, err
			}
			if end := Head + n; len(s.msg) >= end {
				m := s.msg[Head:end:end]
				if s.msg = s.msg[end:]; len(s.msg) == 0 {
					s.msg = nil
				}
				return m, nil
			}
		}
		if err := s.more(); err != nil {
			return nil, err
		}
	}
}

// Break closes the connection after an invalid message.
func (s *Stream) Break() { s.k.link.close() }

// more waits for more of the answer, and lets the server send as much again.
func (s *Stream) more() error {
	k, l := s.k, s.k.link
	l.mu.Lock()
	for len(k.buf) == 0 && !k.ended && k.err == nil {
		k.changed.Wait()
	}
	n, ended, err := len(k.buf), k.ended, k.err
	s.msg = append(s.msg, k.buf...)
	k.buf = k.buf[:0]
	l.mu.Unlock()
	switch {
	case n > 0:
		if s.unsaid += n; s.unsaid >= streamWindow/2 && !ended && err == nil {
			more := frame(nil, frameWindow, 0, k.id, 4)
			more = binary.BigEndian.AppendUint32(more, uint32(s.unsaid)) // #nosec G115 -- at most a window
			more = frame(more, frameWindow, 0, 0, 4)
			more = binary.BigEndian.AppendUint32(more, uint32(s.unsaid)) // #nosec G115 -- as above
			s.unsaid = 0
			_ = l.write(more) // the reader finds out what is wrong
		}
		return nil
	case err != nil:
		return err
	}
	if err := k.status(); err != nil {
		return err
	}
	return io.EOF
}
