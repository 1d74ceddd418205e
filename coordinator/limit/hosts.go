package limit

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	guessesPerSecond = 1
	guessBurst       = 30
	maxHosts         = 4096
)

// Hosts counts wrong join tokens by the address they came from: 30 at once and
// one a second. It remembers 4,096 addresses; those beyond share one count. It
// is safe for concurrent use.
type Hosts struct {
	now func() time.Time

	mu    sync.Mutex
	hosts map[string]*rate.Limiter
	rest  *rate.Limiter // of addresses beyond the limit
}

// NewHosts returns an empty table. now is the clock.
func NewHosts(now func() time.Time) *Hosts {
	return &Hosts{now: now, hosts: map[string]*rate.Limiter{}, rest: rate.NewLimiter(guessesPerSecond, guessBurst)}
}

// May reports whether the host of addr may try a token now.
func (h *Hosts) May(addr net.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.hosts[hostOf(addr)]
	if l == nil {
		if len(h.hosts) < maxHosts {
			return true
		}
		l = h.rest
	}
	return l.TokensAt(h.now()) >= 1
}

// Wrong counts a wrong token against the host of addr.
func (h *Hosts) Wrong(addr net.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, host := h.now(), hostOf(addr)
	l := h.hosts[host]
	if l == nil && len(h.hosts) >= maxHosts {
		for k, old := range h.hosts {
			if old.TokensAt(now) >= guessBurst {
				delete(h.hosts, k)
			}
		}
	}
	switch {
	case l != nil:
	case len(h.hosts) >= maxHosts:
		l = h.rest
	default:
		l = rate.NewLimiter(guessesPerSecond, guessBurst)
		h.hosts[host] = l
	}
	l.AllowN(now, 1)
}

// hostOf returns what counts as one host: an IPv4 address, or an IPv6 network of 64
// bits, all of which one machine may have.
func hostOf(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.Network()
	}
	ip := ap.Addr().Unmap()
	if ip.Is6() {
		if p, err := ip.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}
