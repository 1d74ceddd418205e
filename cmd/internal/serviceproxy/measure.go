package serviceproxy

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/wait"
)

const (
	// DefaultHold is how long a request waits for a replica of a sleeping service.
	DefaultHold = 5 * time.Minute
	// DefaultQueue is how many requests may wait at once.
	DefaultQueue = 100
	// reportEvery is how often a coordinator is sent measurements, and denied how
	// long it is sent none after it refused them.
	reportEvery = 2 * time.Second
	denied      = 30 * time.Second
)

// measured is where a response goes, and what became of it.
type measured struct {
	http.ResponseWriter
	status int
	held   bool // the request waited for a replica to start
}

type measuredKey struct{}

// WriteHeader implements http.ResponseWriter.
func (m *measured) WriteHeader(status int) {
	if m.status = status; status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		m.status = 0 // more is to come
	}
	m.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (m *measured) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (p *Proxy) count(change func(*service.Counted)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.counted)
}

// awaken waits for a replica of a sleeping service if there is room in the
// queue; it returns nil when none starts in time.
func (p *Proxy) awaken(ctx context.Context) *replica {
	p.mu.Lock()
	if !p.sleeps || p.counted.Waiting >= p.queue {
		p.mu.Unlock()
		return nil
	}
	p.counted.Waiting, p.counted.InFlight = p.counted.Waiting+1, p.counted.InFlight-1
	p.mu.Unlock()
	defer p.count(func(c *service.Counted) { c.Waiting, c.InFlight = c.Waiting-1, c.InFlight+1 })
	if m, ok := ctx.Value(measuredKey{}).(*measured); ok {
		m.held = true
	}
	wait.Poke(p.wake)
	ctx, cancel := context.WithTimeout(ctx, p.hold)
	defer cancel()
	for {
		p.mu.Lock()
		changed, gone := p.changed, !p.sleeps
		p.mu.Unlock()
		if r := p.take(nil); r != nil || gone {
			return r
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// Tell receives what was counted since the proxy with this name started.
type Tell func(ctx context.Context, proxy string, c *service.Counted) error

// Report passes measurements to tell until ctx ends, at once when a request
// begins to wait.
func (p *Proxy) Report(ctx context.Context, tell Tell) {
	name, failed := rand.Text(), false
	for pause := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-time.After(pause):
		}
		p.mu.Lock()
		c := p.counted
		p.mu.Unlock()
		err := tell(ctx, name, &c)
		if pause = reportEvery; err != nil {
			pause = denied
			if c.Waiting > 0 {
				pause = reportEvery
			}
			if !failed && ctx.Err() == nil {
				p.log.WarnContext(ctx, "what is measured of requests reaches nobody", "err", err)
			}
		}
		failed = err != nil
	}
}
