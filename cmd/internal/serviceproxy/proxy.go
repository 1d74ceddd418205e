// Package serviceproxy provides one stable address for a service: it forwards
// requests to the replicas that are ready. It runs as the user who starts it,
// without further rights.
package serviceproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/wait"
)

const (
	// every is how often the list of replicas is read.
	every = time.Second
	// tries is how many replicas a request that none accepts is tried on.
	tries = 3
	// avoided is how long a replica that refused a connection is not tried.
	avoided = 2 * time.Second
)

// There is where the replicas of a service accept requests, as host:port.
// Sleeps reports whether it may have none while it gets no requests, so that
// waiting for one is worthwhile.
type There struct {
	Addrs  []string
	Sleeps bool
}

// List returns where the replicas of a service are.
type List func(context.Context) (There, error)

// Proxy forwards requests. It is safe for concurrent use.
type Proxy struct {
	list List
	log  *slog.Logger
	http httputil.ReverseProxy
	base http.RoundTripper

	// hold is how long a request waits for a replica of a sleeping service, queue
	// how many may wait at once; zero values mean the defaults.
	hold  time.Duration
	queue int
	// wake signals a waiting request that was not reported yet.
	wake chan struct{}

	mu      sync.Mutex
	there   []*replica
	known   bool // list has answered
	sleeps  bool
	changed chan struct{} // closed and replaced when replicas come
	turn    uint64
	counted service.Counted
}

// replica is where requests may go.
type replica struct {
	addr     string
	inFlight int
	turn     uint64 // when it was last chosen; 0 is never
	avoid    time.Time
}

// New returns a proxy to the replicas that list returns.
func New(list List, log *slog.Logger) *Proxy {
	p := &Proxy{list: list, log: log, hold: DefaultHold, queue: DefaultQueue, wake: make(chan struct{}, 1), changed: make(chan struct{}), base: &http.Transport{
		DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext, MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second,
	}}
	p.http = httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetXForwarded()
			r.Out.URL.Scheme, r.Out.Host = "http", r.In.Host
		},
		Transport:     p,
		FlushInterval: -1, // tokens arrive one by one
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, errNobody) {
				w.Header().Set("Retry-After", "1")
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			p.log.WarnContext(r.Context(), "request failed", "path", r.URL.Path, "err", err)
			http.Error(w, "the replica did not answer", http.StatusBadGateway)
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return p
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began, m := time.Now(), &measured{ResponseWriter: w}
	ctx := context.WithValue(r.Context(), measuredKey{}, m)
	p.count(func(c *service.Counted) { c.Requests, c.InFlight = c.Requests+1, c.InFlight+1 })
	defer func() {
		broken := r.Context().Err() != nil // the client left
		p.count(func(c *service.Counted) {
			c.InFlight--
			switch {
			case m.held:
				c.Held++
			case m.status >= http.StatusBadGateway && m.status <= http.StatusGatewayTimeout:
				c.Latency.Add(math.MaxInt64) // never
			case m.status != http.StatusSwitchingProtocols && !broken:
				c.Latency.Add(time.Since(began))
			}
		})
	}()
	p.http.ServeHTTP(m, r.WithContext(ctx))
}

// Follow keeps the list of replicas current until ctx ends. While it cannot
// be read, the last list stays.
func (p *Proxy) Follow(ctx context.Context) {
	for ctx.Err() == nil {
		there, err := p.list(ctx)
		switch {
		case err == nil:
			p.set(there.Addrs)
			p.maySleep(there.Sleeps)
		case ctx.Err() == nil:
			p.log.WarnContext(ctx, "cannot learn where the replicas are; the last known stand", "err", err)
		}
		wait.Sleep(ctx, every)
	}
}

func (p *Proxy) maySleep(sleeps bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sleeps && !sleeps { // no request needs to wait any longer
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.sleeps = sleeps
}

func (p *Proxy) set(addrs []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := make([]*replica, 0, len(addrs))
	for _, a := range addrs {
		if i := slices.IndexFunc(p.there, func(r *replica) bool { return r.addr == a }); i >= 0 {
			now = append(now, p.there[i])
		} else {
			now = append(now, &replica{addr: a})
			p.known = false // something is new
		}
	}
	if !p.known || len(now) != len(p.there) {
		p.log.Info("replicas", "addresses", addrs)
	}
	p.there, p.known = now, true
	if len(now) > 0 {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

var errNobody = errors.New("no replica of the service is ready")

// take picks the replica with the fewest requests in flight among the untried
// ones, and of several the one whose turn it is.
func (p *Proxy) take(tried []*replica) *replica {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best *replica
	now := time.Now()
	worse := func(r *replica) bool { // than the best
		if a, b := r.avoid.After(now), best.avoid.After(now); a != b {
			return a
		}
		return r.inFlight > best.inFlight || r.inFlight == best.inFlight && r.turn > best.turn
	}
	for _, r := range p.there {
		if !slices.Contains(tried, r) && (best == nil || !worse(r)) {
			best = r
		}
	}
	if best != nil {
		p.turn++
		best.inFlight, best.turn = best.inFlight+1, p.turn
	}
	return best
}

func (p *Proxy) done(r *replica, avoid bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.inFlight--; avoid {
		r.avoid = time.Now().Add(avoided)
	}
}

// RoundTrip forwards a request to a replica, and to another one if the first
// refused the connection, or lost it before it answered a request that may be
// repeated.
func (p *Proxy) RoundTrip(req *http.Request) (*http.Response, error) {
	var tried []*replica
	var last error
	for range tries {
		r := p.take(tried)
		if r == nil && len(tried) == 0 {
			r = p.awaken(req.Context())
		}
		if r == nil {
			break
		}
		tried = append(tried, r)
		out := req.Clone(req.Context())
		out.URL.Host = r.addr
		if out.Body != nil {
			out.Body = io.NopCloser(req.Body) // it may have to be sent to another replica
		}
		resp, err := p.base.RoundTrip(out)
		if err == nil && repeatable(req) {
			err = whole(resp)
		}
		if err == nil {
			resp.Body = &body{ReadCloser: resp.Body, done: sync.OnceFunc(func() { p.done(r, false) })}
			return resp, nil
		}
		p.done(r, req.Context().Err() == nil)
		if last = err; req.Context().Err() != nil || !again(req, err) {
			return nil, err
		}
	}
	if last != nil {
		return nil, last
	}
	return nil, errNobody
}

// again reports whether a failed request can be sent to another replica: none
// saw it, or it changes nothing.
func again(req *http.Request, err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	return repeatable(req)
}

// repeatable reports whether a request changes nothing, and has no body.
func repeatable(req *http.Request) bool {
	return (req.Body == nil || req.Body == http.NoBody) && (req.Method == http.MethodGet || req.Method == http.MethodHead || req.Method == http.MethodOptions)
}

// smallBytes is the longest response that is read in full before it is
// forwarded, so that a broken one can be requested again.
const smallBytes = 64 << 10

// whole reads a small response to its end.
func whole(resp *http.Response) error {
	if resp.ContentLength < 1 || resp.ContentLength > smallBytes || resp.Request.Method == http.MethodHead {
		return nil
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read, or is useless
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return err
}

// body reports when a response was read.
type body struct {
	io.ReadCloser
	done func()
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.done()
	return b.ReadCloser.Close()
}

// Write implements io.Writer, for connections that change their protocol.
func (b *body) Write(data []byte) (int, error) {
	w, ok := b.ReadCloser.(io.Writer)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return w.Write(data)
}
