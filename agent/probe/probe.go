// Package probe checks the health of service replicas. Each has a port of its node that was
// chosen for it, and answers there. The listening socket must belong to the replica's user:
// another user's process that took the port gets none of its requests.
package probe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/wait"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const (
	// patience is how long a replica may take to answer.
	patience = 2 * time.Second
	// mostBytes is how much of an answer is read.
	mostBytes = 4 << 10
)

// Ask checks a user's replica once, and returns what is wrong with it.
type Ask func(ctx context.Context, r *nodev1.Replica, uid uint32) error

// Prober checks the replicas of a node periodically. It is safe for concurrent use.
type Prober struct {
	ask Ask

	mu      sync.Mutex
	each    map[cluster.AttemptID]*probed
	running sync.WaitGroup
}

type probed struct {
	stop context.CancelFunc
	last *nodev1.Probe // nil before the first answer
}

// New returns a Prober that checks nothing yet; ask is At except in tests.
func New(ask Ask) *Prober { return &Prober{ask: ask, each: map[cluster.AttemptID]*probed{}} }

// Begin starts to check a user's attempt; nil means that it is no replica.
func (p *Prober) Begin(id cluster.AttemptID, uid uint32, r *nodev1.Replica) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r == nil || p.each[id] != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	e := &probed{stop: stop}
	p.each[id] = e
	p.running.Go(func() { p.run(ctx, e, uid, r) })
}

// End stops checking an attempt.
func (p *Prober) End(id cluster.AttemptID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.each[id]; e != nil {
		e.stop()
		delete(p.each, id)
	}
}

// Close stops all checks.
func (p *Prober) Close() {
	p.mu.Lock()
	for _, e := range p.each {
		e.stop()
	}
	clear(p.each)
	p.mu.Unlock()
	p.running.Wait()
}

// Add adds the health of attempts to their usage, including attempts that have used nothing.
func (p *Prober) Add(uses []*nodev1.AttemptUse) []*nodev1.AttemptUse {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.each) == 0 {
		return uses
	}
	by := map[cluster.AttemptID]*nodev1.AttemptUse{}
	for _, u := range uses {
		by[cluster.AttemptID{Job: cluster.JobID(u.Job), No: u.Attempt}] = u
	}
	for id, e := range p.each {
		if e.last == nil {
			continue
		}
		u := by[id]
		if u == nil {
			u = &nodev1.AttemptUse{Job: uint64(id.Job), Attempt: id.No}
			uses = append(uses, u)
		}
		u.Probe = e.last
	}
	return uses
}

func (p *Prober) run(ctx context.Context, e *probed, uid uint32, r *nodev1.Replica) {
	every := max(time.Second, r.GetEvery().AsDuration())
	fails, up := uint32(0), false
	for ctx.Err() == nil {
		ask, cancel := context.WithTimeout(ctx, patience)
		err := p.ask(ask, r, uid)
		cancel()
		if ctx.Err() != nil {
			return
		}
		now := &nodev1.Probe{Ok: err == nil}
		if fails++; err == nil {
			fails, up = 0, true
		} else {
			now.Fails, now.Why = fails, err.Error()
			now.Why = service.ClipWhy(now.Why)
		}
		p.mu.Lock()
		e.last = now
		p.mu.Unlock()
		pause := every
		if !up { // it is starting, and should be noticed soon
			pause = time.Second
		}
		wait.Sleep(ctx, pause)
	}
}

// At is [Answers] on a node that others reach at an address, given as HOST or HOST:PORT.
func At(address string) Ask {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, err := netip.ParseAddr(host)
	six := err != nil || !ip.Unmap().Is4() // a name may have both
	return func(ctx context.Context, r *nodev1.Replica, uid uint32) error { return Answers(ctx, r, uid, six) }
}

// Answers reports why a replica cannot receive requests: its port is another user's, or it
// accepts no connection there, or does not answer a GET of its health path with 2xx or 3xx. six
// says whether requests may come by IPv6.
func Answers(ctx context.Context, r *nodev1.Replica, uid uint32, six bool) error {
	switch owner, there, err := listener(uid, uint16(r.GetPort()), six); {
	case err != nil:
		return err
	case !there:
		return fmt.Errorf("nothing listens on port %d, the one in PORT", r.GetPort())
	case owner != uid:
		return fmt.Errorf("port %d is held by a process of another user, with uid %d", r.GetPort(), owner)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(r.GetPort())))
	if r.GetHealth() == "" {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return c.Close()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+r.GetHealth(), http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "berth")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, mostBytes) // the answer's text is ignored
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("GET %s: %s", r.GetHealth(), resp.Status)
	}
	return nil
}

// client follows no redirect: a replica that answers with one is up.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}
