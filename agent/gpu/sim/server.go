package sim

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu/sim/wire"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// Limits of the service.
const (
	maxConns    = 1024
	outQueue    = 64                     // replies that a client may leave unread
	helloWithin = 5 * time.Second        // from connect to a valid hello
	writeWithin = 10 * time.Second       // for a client to take a reply
	tick        = 500 * time.Millisecond // between progress replies of a run
)

// peer identifies the other end, as reported by the kernel.
type peer struct {
	pid int
	uid uint32
}

// conn is one connection. All but nc, peer and out's receiving side is guarded by Provider.mu.
type conn struct {
	nc     net.Conn
	peer   peer
	out    chan wire.Reply
	client *client
	gone   bool // out is closed
}

// send queues a reply without waiting: a client that does not read loses first its progress
// reports and then its connection.
func (c *conn) send(r wire.Reply) {
	if c.gone || (r.Code == wire.CodeProgress && len(c.out) > outQueue/2) {
		return
	}
	select {
	case c.out <- r:
	default:
		c.gone = true
		close(c.out) // the writer sends what is queued and closes the connection
	}
}

// accept accepts connections until Close.
func (p *Provider) accept() {
	for {
		nc, err := p.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.log.Warn("accept failed", "component", "gpu-sim", "err", err)
			select { // most likely out of files: give others time to close some
			case <-time.After(100 * time.Millisecond):
				continue
			case <-p.done:
				return
			}
		}
		who, err := p.peer(nc)
		if err != nil {
			p.log.Warn("peer unknown", "component", "gpu-sim", "err", err)
			nc.Close()
			continue
		}
		c := &conn{nc: nc, peer: who, out: make(chan wire.Reply, outQueue)}
		p.mu.Lock()
		if p.closed || len(p.conns) >= maxConns {
			p.mu.Unlock()
			nc.Close()
			continue
		}
		p.conns[c] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { p.write(c) })
		p.wg.Go(func() { p.read(c) })
	}
}

// write sends the replies of c until there are no more.
func (p *Provider) write(c *conn) {
	defer c.nc.Close()
	for r := range c.out {
		c.nc.SetWriteDeadline(time.Now().Add(writeWithin))
		if wire.Write(c.nc, r) != nil {
			c.nc.Close() // ends read, which closes c.out
		}
	}
}

// read serves the requests of c. When it ends, everything that c's process held is free again.
func (p *Provider) read(c *conn) {
	defer p.drop(c)
	c.nc.SetReadDeadline(time.Now().Add(helloWithin))
	for {
		q, err := wire.ReadRequest(c.nc)
		if err != nil {
			if errors.Is(err, wire.ErrFrame) {
				p.log.Warn("bad request", "component", "gpu-sim", "pid", c.peer.pid, "uid", c.peer.uid, "err", err)
				p.mu.Lock()
				c.send(wire.Reply{ID: q.ID, Code: wire.CodeBad, Msg: err.Error()})
				p.mu.Unlock()
			} else if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
				p.log.Debug("client lost", "component", "gpu-sim", "pid", c.peer.pid, "err", err)
			}
			return
		}
		p.mu.Lock()
		p.settle()
		rep := p.handle(c, &q)
		if rep.Code != "" {
			c.send(rep)
		}
		greeted := q.Op == wire.OpHello && rep.Code == wire.CodeOK
		p.mu.Unlock()
		if greeted {
			c.nc.SetReadDeadline(time.Time{})
		}
	}
}

// drop forgets c and frees what its process held.
func (p *Provider) drop(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	if c.client != nil {
		p.bank.leave(c.client)
	}
	delete(p.conns, c)
	if !c.gone {
		c.gone = true
		close(c.out)
	}
	p.nudge()
}

// handle answers one request. The zero Reply means that the answer comes later.
func (p *Provider) handle(c *conn, q *wire.Request) wire.Reply {
	if (q.Op == wire.OpHello) != (c.client == nil) {
		return answer(q, refuse(wire.CodeBad, "hello comes first, and once"))
	}
	switch q.Op {
	case wire.OpHello:
		return p.hello(c, q)
	case wire.OpAlloc:
		ref := c.client.alloc(*q.Alloc)
		rep := answer(q, ref)
		if ref == nil {
			rep.Memory = c.client.memory(q.Alloc.Card)
		}
		return rep
	case wire.OpFree:
		i, ref := c.client.free(q.Alloc.ID)
		rep := answer(q, ref)
		if ref == nil {
			rep.Memory = c.client.memory(i)
		}
		return rep
	case wire.OpRun:
		if c.client.run != nil {
			return answer(q, refuse(wire.CodeBad, "a run is under way"))
		}
		p.bank.start(c.client, &run{
			id: q.ID, util: q.Run.UtilMilli,
			total: float64(q.Run.Work), done: float64(q.Run.Done),
		})
		p.nudge()
		return wire.Reply{}
	default: // wire.OpStop: requests were checked when read
		rep := answer(q, nil)
		if r := p.bank.stop(c.client); r != nil {
			rep.Done = time.Duration(r.done)
			c.send(wire.Reply{ID: r.id, Code: wire.CodeOK, Done: time.Duration(r.done)})
			p.nudge()
		}
		return rep
	}
}

// hello lets a process join its attempt, if it belongs to the attempt's user.
func (p *Provider) hello(c *conn, q *wire.Request) wire.Reply {
	gr, known := p.bank.grants[q.Hello.Attempt]
	if known && c.peer.uid != gr.UID && c.peer.uid != 0 && int(c.peer.uid) != os.Geteuid() {
		p.log.Warn("wrong user", "component", "gpu-sim", "pid", c.peer.pid, "uid", c.peer.uid, "task", q.Hello.Attempt)
		return answer(q, refuse(wire.CodeDenied, "attempt %s is another user's", q.Hello.Attempt))
	}
	cl, ref := p.bank.join(c.peer.pid, q.Hello)
	if ref != nil {
		return answer(q, ref)
	}
	c.client = cl
	rep := answer(q, nil)
	for _, t := range cl.cards {
		rep.Cards = append(rep.Cards, wire.Card{
			UUID: t.card.info.UUID, Type: t.card.info.Type, Name: t.card.info.Name,
			TotalBytes: t.card.info.MemMiB << 20, ContextBytes: t.card.context,
			SpeedMilli: t.card.model.speedMilli,
		})
	}
	return rep
}

func answer(q *wire.Request, ref *refusal) wire.Reply {
	if ref == nil {
		return wire.Reply{ID: q.ID, Code: wire.CodeOK}
	}
	return wire.Reply{ID: q.ID, Code: ref.code, Msg: ref.msg, Memory: ref.mem}
}

// settle brings the accounts up to date and answers the runs that ended. The caller holds p.mu.
func (p *Provider) settle() {
	for _, e := range p.bank.advance(time.Since(p.start)) {
		if c := p.connOf(e.client); c != nil {
			c.send(wire.Reply{ID: e.run.id, Code: wire.CodeOK, Done: time.Duration(e.run.done)})
		}
	}
}

func (p *Provider) connOf(cl *client) *conn {
	for c := range p.conns {
		if c.client == cl {
			return c
		}
	}
	return nil
}

// pace wakes when a run ends and, while any is active, once per tick.
func (p *Provider) pace() {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-timer.C:
		case <-p.wake:
		}
		if d, running := p.beat(); running {
			timer.Reset(d)
		}
	}
}

// beat settles, reports progress once per tick, and returns how long nothing will happen by
// itself.
func (p *Provider) beat() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	if p.bank.now-p.lastTick >= tick {
		p.lastTick = p.bank.now
		for c := range p.conns {
			if c.client != nil && c.client.run != nil {
				r := c.client.run
				c.send(wire.Reply{
					ID: r.id, Code: wire.CodeProgress,
					Done: time.Duration(r.done), SpeedMilli: int64(r.speed * fullLoad),
				})
			}
		}
	}
	end, running := p.bank.nextEnd()
	return max(0, min(end, p.lastTick+tick-p.bank.now)), running
}

// nudge makes the pacer look again.
func (p *Provider) nudge() { wait.Poke(p.wake) }
