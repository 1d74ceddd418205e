package link

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Conn makes calls over one socket. It connects on demand, and keeps one
// connection for the next call. It is safe for concurrent use.
type Conn struct {
	// Dial connects.
	Dial func(context.Context) (net.Conn, error)
	// Header is sent with each call: names in lower case, and values.
	Header [][2]string
	// Most is the largest size of a message of an answer, in bytes.
	Most int
	// Sent is called before a call is sent, and Unsent when it turns out that the
	// server did not begin it.
	Sent, Unsent func()

	mu   sync.Mutex
	idle *link
}

// Close closes the kept connection. Calls in progress end by their contexts.
func (c *Conn) Close() {
	if l := c.kept(); l != nil {
		l.close()
	}
}

// kept takes the kept connection, nil if there is none.
func (c *Conn) kept() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.idle
	c.idle = nil
	return l
}

// keep keeps a connection for the next call, unless one is kept already.
func (c *Conn) keep(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil || !l.again() {
		l.close()
		return
	}
	c.idle = l
}

// Invoke makes a unary call, with encoded messages. The request begins with
// Head bytes that are reserved for gRPC. The error is a *Status; a connection
// that breaks is Unavailable, as with gRPC's own client.
func (c *Conn) Invoke(ctx context.Context, method string, req []byte) (resp []byte, err error) {
	req = framed(req)
	l := c.kept()
	if l != nil && !l.alive() {
		l.close()
		l = nil
	}
	if l == nil {
		if l, err = c.connect(ctx, wholeAnswer); err != nil {
			return nil, failed(ctx, err)
		}
	}
	stop := context.AfterFunc(ctx, l.interrupt)
	k := l.begin(c.Most)
	err = c.ask(ctx, k, method, req)
	switch {
	case !stop() || err != nil:
		l.close()
	default:
		c.keep(l)
	}
	if err != nil {
		return nil, failed(ctx, err)
	}
	return k.answer()
}

// ask sends a request and reads until the call has ended.
func (c *Conn) ask(ctx context.Context, k *call, method string, data []byte) error {
	c.Sent()
	if k.open(ctx, method, c.Header, data) != nil {
		k.link.bye = true // it may have been answered before it was sent completely
	}
	var err error
	for err == nil && !k.ended {
		err = k.link.step(k)
	}
	if k.refused {
		c.Unsent()
	}
	return err
}

// connect opens a connection on which each call's answer may have window
// bytes in flight, and waits for the server to identify as HTTP/2: nothing of
// a call is sent before that.
func (c *Conn) connect(ctx context.Context, window uint32) (*link, error) {
	nc, err := c.Dial(ctx)
	if err != nil {
		return nil, err
	}
	l := newLink(nc)
	stop := context.AfterFunc(ctx, l.interrupt)
	err = l.greet(window)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// failed returns the status of a call that received none.
func failed(ctx context.Context, err error) error {
	cause := ctx.Err()
	if end, ok := ctx.Deadline(); cause == nil && ok && !time.Now().Before(end) {
		cause = context.DeadlineExceeded
	}
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		return statusf(DeadlineExceeded, "%v", cause)
	case cause != nil:
		return statusf(Canceled, "%v", cause)
	}
	if _, ok := errors.AsType[*Status](err); ok {
		return err
	}
	return statusf(Unavailable, "%v", err)
}
