// Package tunnel carries connections from a user's machine to a socket inside a job, many over
// one byte stream: the stream belongs to a command that runs in the job, with its user and
// network, and dials.
package tunnel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/step"
)

// Arg is the first argument of a process that runs Main.
const Arg = "job-tunnel"

// What a frame says about the connection whose number is its Task.
const (
	opened step.Kind = 'n'
	data   step.Kind = 'd'
	end    step.Kind = 'z' // nothing more comes from that side
	gone   step.Kind = 'x' // it is over, for both sides
	room   step.Kind = 'r' // how many bytes were consumed, four bytes
)

const (
	// window is how much data of one connection may be in transit: one that is not read delays
	// no other.
	window = 256 << 10
	// maxConns bounds the connections of one tunnel.
	maxConns = 512
	dialWait = 10 * time.Second
)

// Target resolves the name of a job's socket: an absolute path, or a port on the job's own
// loopback address.
func Target(text string) (network, address string, err error) {
	if strings.HasPrefix(text, "/") {
		return "unix", text, nil
	}
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 1<<16 {
		return "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n)), nil
	}
	return "", "", fmt.Errorf("%q: want the absolute path of a socket, or a port from 1 to 65535", text)
}

// Main is the end in the job: it dials what args name for each connection that stdin brings,
// until that ends. It returns the exit code of the process.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	err := errors.New("started with the wrong arguments")
	var network, address string
	if len(args) == 1 {
		network, address, err = Target(args[0])
	}
	if err != nil {
		fmt.Fprintf(stderr, "berth: tunnel: %v\n", err)
		return 125
	}
	m := newMux(stdout)
	m.dial = func(ctx context.Context) (net.Conn, error) {
		d := net.Dialer{Timeout: dialWait}
		return d.DialContext(ctx, network, address)
	}
	if err := m.run(stdin); err != nil {
		fmt.Fprintf(stderr, "berth: tunnel: %v\n", err)
		return 1
	}
	return 0
}

// Carry is the user's end: it has each incoming connection answered in the job, over a stream
// to its Main, until the stream ends. It returns nil when the other side ended it, and closes
// open connections. A caller that cancels must make sure that the stream ends.
func Carry(conns <-chan net.Conn, from io.Reader, to io.Writer) error {
	m := newMux(to)
	done := make(chan error, 1)
	go func() { done <- m.run(from) }() // ends with the stream, for which the loop below waits
	for no := uint32(1); ; {
		select {
		case err := <-done:
			return err
		case nc := <-conns:
			open := func(c *conn) {
				m.send(step.Frame{Kind: opened, Task: c.no})
				c.serve(nc)
			}
			if !m.add(no, open) {
				_ = nc.Close() // nothing was sent on it
				continue
			}
			no++
		}
	}
}

type mux struct {
	out  *step.Writer
	dial func(context.Context) (net.Conn, error) // in the job only
	ctx  context.Context
	stop context.CancelFunc
	// serving are the goroutines of all connections.
	serving sync.WaitGroup

	mu    sync.Mutex
	conns map[uint32]*conn
}

func newMux(to io.Writer) *mux {
	m := &mux{out: step.NewWriter(to), conns: map[uint32]*conn{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

// send ignores errors: the reader notices that the stream has ended.
func (m *mux) send(f step.Frame) { _ = m.out.Write(f) }

// add creates a connection and has serve run for it, in a goroutine of serving. It returns
// false when there are too many, it exists already, or the stream has ended.
func (m *mux) add(no uint32, serve func(*conn)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.conns) >= maxConns || m.conns[no] != nil || m.ctx.Err() != nil {
		return false
	}
	c := &conn{m: m, no: no, room: window, news: make(chan struct{})}
	m.conns[no] = c
	m.serving.Go(func() { serve(c) })
	return true
}

// end closes all connections and waits for their goroutines: none is added any more.
func (m *mux) end() {
	m.mu.Lock()
	m.stop()
	m.mu.Unlock()
	m.serving.Wait()
}

func (m *mux) find(no uint32) *conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conns[no]
}

// run handles frames until they end.
func (m *mux) run(from io.Reader) error {
	defer m.end()
	for {
		f, err := step.Read(from)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		m.frame(f)
	}
}

// frame never blocks: what cannot be passed on at once is kept, at most one window.
func (m *mux) frame(f step.Frame) {
	if f.Kind == opened {
		if m.dial == nil {
			return
		}
		if !m.add(f.Task, (*conn).answer) {
			m.serving.Go(func() { m.send(step.Frame{Kind: gone, Task: f.Task}) })
		}
		return
	}
	c := m.find(f.Task)
	if c == nil {
		return // it has ended here meanwhile
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f.Kind {
	case data:
		if c.held += len(f.Data); c.held > window {
			c.over = true // our own end never sends that much
		}
		c.queue = append(c.queue, f.Data)
	case end:
		c.ended = true
	case gone:
		c.over, c.told = true, true
	case room:
		if len(f.Data) == 4 {
			c.room += int(binary.BigEndian.Uint32(f.Data))
		}
	}
	c.changed()
}

// conn is one connection, as one end sees it.
type conn struct {
	m  *mux
	no uint32

	mu sync.Mutex
	// news is closed and recreated when anything below changes.
	news  chan struct{}
	queue [][]byte // from the other end, held bytes not yet consumed
	held  int
	ended bool // nothing more comes from there
	room  int  // how much the other end accepts
	over  bool
	told  bool // the other end has announced its end
}

// changed wakes everything that waits for news. The caller holds c.mu.
func (c *conn) changed() {
	close(c.news)
	c.news = make(chan struct{})
}

// answer dials for a connection that the other end opened.
func (c *conn) answer() {
	nc, err := c.m.dial(c.m.ctx)
	if err != nil {
		c.leave()
		return
	}
	c.serve(nc)
}

// leave forgets the connection, and tells the other end unless it knows.
func (c *conn) leave() {
	c.mu.Lock()
	told := c.told
	c.mu.Unlock()
	c.m.mu.Lock()
	delete(c.m.conns, c.no)
	c.m.mu.Unlock()
	if !told {
		c.m.send(step.Frame{Kind: gone, Task: c.no})
	}
}

// serve transfers both ways until both sides have ended, or one is gone.
func (c *conn) serve(nc net.Conn) {
	defer c.leave()
	defer nc.Close()
	defer context.AfterFunc(c.m.ctx, func() { _ = nc.Close() })() // unblocks reads and writes
	var up sync.WaitGroup
	up.Go(func() {
		if !c.up(nc) {
			c.end()
		}
	})
	if !c.down(nc) {
		c.end()
		_ = nc.Close() // unblocks the read
	}
	up.Wait()
}

// end stops both directions.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.changed()
}

// up sends what nc sends; false when nc is no longer usable.
func (c *conn) up(nc net.Conn) bool {
	buf := make([]byte, step.MaxData)
	for {
		n := c.space(len(buf))
		if n == 0 {
			return true // it is over
		}
		n, err := nc.Read(buf[:n])
		if n > 0 {
			c.mu.Lock()
			c.room -= n
			c.mu.Unlock()
			c.m.send(step.Frame{Kind: data, Task: c.no, Data: buf[:n]})
		}
		if errors.Is(err, io.EOF) {
			c.m.send(step.Frame{Kind: end, Task: c.no})
			return true
		}
		if err != nil {
			return false
		}
	}
}

// space waits until the other end accepts data, and returns how much, up to most; 0 when the
// connection is over.
func (c *conn) space(most int) int {
	for {
		c.mu.Lock()
		n, over, news := min(most, c.room), c.over, c.news
		c.mu.Unlock()
		if over || n > 0 {
			if over {
				return 0
			}
			return n
		}
		select {
		case <-news:
		case <-c.m.ctx.Done():
			return 0
		}
	}
}

// down passes the other end's data to nc; false when nc is no longer usable, or the connection
// is over.
func (c *conn) down(nc net.Conn) bool {
	for {
		c.mu.Lock()
		queue, over, ended, news := c.queue, c.over, c.ended, c.news
		c.queue = nil
		c.mu.Unlock()
		for _, d := range queue {
			if _, err := nc.Write(d); err != nil {
				return false
			}
			c.mu.Lock()
			c.held -= len(d)
			c.mu.Unlock()
			c.m.send(step.Frame{Kind: room, Task: c.no, Data: binary.BigEndian.AppendUint32(nil, uint32(len(d)))})
		}
		switch {
		case len(queue) > 0:
		case over:
			return false
		case ended:
			if half, ok := nc.(interface{ CloseWrite() error }); ok {
				return half.CloseWrite() == nil
			}
			return false
		default:
			select {
			case <-news:
			case <-c.m.ctx.Done():
				return false
			}
		}
	}
}
