// Package sim is a GPU provider with simulated GPUs that keep real accounts: every process that
// uses a GPU requests its memory and compute over a unix socket, is refused what is not
// available, and is slowed down by its neighbours. On laptops, in tests and in demonstrations,
// everything runs except CUDA itself. DESIGN.md in this directory says what is modelled and
// what is not.
package sim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/sim/wire"
)

// Config says which GPUs to simulate.
type Config struct {
	// Node is the node's name. Together with the index it determines each GPU's UUID, so that a
	// restarted agent has the same GPUs.
	Node  string
	Specs []Spec
	// Socket is the absolute path of the unix socket; its directory is created when missing.
	// Every user whose jobs run here must be able to reach it, so none of its parents may be
	// private. Jobs in an image need the directory bound into their root, not the socket: a
	// restarted agent creates a new one.
	Socket string
	// Unenforced leaves the enforcement of shares to the watch, as on GPUs whose driver caps
	// nothing: an attempt is refused only what the GPU does not have.
	Unenforced bool
	Log        *slog.Logger // nil discards
}

// maxSocketPath is what fits into sockaddr_un with its terminating NUL.
const maxSocketPath = 107

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	if c.Node == "" {
		errs = append(errs, errors.New("simulated GPUs: no node name"))
	}
	if !filepath.IsAbs(c.Socket) || len(c.Socket) > maxSocketPath {
		errs = append(errs, fmt.Errorf("simulated GPUs: socket %q must be an absolute path of at most %d bytes", c.Socket, maxSocketPath))
	}
	total := 0
	for _, s := range c.Specs {
		if _, err := s.check(); err != nil {
			errs = append(errs, err)
		}
		total += s.Count
	}
	if total < 1 || total > MaxCards {
		errs = append(errs, fmt.Errorf("simulated GPUs: %d cards, outside 1-%d", total, MaxCards))
	}
	return errors.Join(errs...)
}

// Provider is the gpu.Provider of simulated GPUs. It serves the jobs' processes from New until
// Close.
type Provider struct {
	cfg   Config
	log   *slog.Logger
	start time.Time
	ln    net.Listener
	peer  func(net.Conn) (peer, error)
	wake  chan struct{} // the pacer must look again
	done  chan struct{} // closed by Close
	wg    sync.WaitGroup

	mu       sync.Mutex
	bank     *bank
	conns    map[*conn]struct{}
	lastTick time.Duration
	closed   bool
}

var (
	_ gpu.Provider   = (*Provider)(nil)
	_ gpu.Accountant = (*Provider)(nil)
	_ gpu.Regranter  = (*Provider)(nil)
	_ gpu.Tuner      = (*Provider)(nil)
	_ gpu.Cutter     = (*Provider)(nil)
)

// New opens the socket and starts to serve. The caller must call Close.
func New(cfg Config) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ln, err := listen(cfg.Socket)
	if err != nil {
		return nil, fmt.Errorf("simulated GPUs: %w", err)
	}
	p, err := newProvider(cfg, ln, peerOf)
	if err != nil {
		ln.Close()
		return nil, err
	}
	if dir := closedDir(cfg.Socket); dir != "" {
		p.log.Warn("jobs of other users cannot reach their simulated GPUs: folder is not open to all",
			"component", "gpu-sim", "folder", dir, "socket", cfg.Socket)
	}
	return p, nil
}

// closedDir returns the innermost parent directory of path that other users cannot enter, or
// "".
func closedDir(path string) string {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err == nil && st.Mode().Perm()&0o001 == 0 {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// newProvider serves on ln; tests pass a listener of pipes.
func newProvider(cfg Config, ln net.Listener, peerOf func(net.Conn) (peer, error)) (*Provider, error) {
	b, err := newBank(cfg.Node, cfg.Specs)
	if err != nil {
		return nil, err
	}
	p := &Provider{
		cfg: cfg, log: cfg.Log, start: time.Now(), ln: ln, peer: peerOf,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		bank: b, conns: map[*conn]struct{}{},
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	b.unenforced = cfg.Unenforced
	p.remember()
	p.wg.Go(p.accept)
	p.wg.Go(p.pace)
	return p, nil
}

func newBank(node string, specs []Spec) (*bank, error) {
	b := &bank{grants: map[string]*grant{}}
	for _, s := range specs {
		m, err := s.check()
		if err != nil {
			return nil, err
		}
		for range s.Count {
			i := len(b.cards)
			b.cards = append(b.cards, &card{
				info: gpu.Card{
					UUID: UUID(node, i), Type: m.typ, Name: m.name, Index: i,
					MemMiB: m.memMiB, ReservedMiB: m.reservedMiB,
					PCI: fmt.Sprintf("00000000:%02X:00.0", i+1), NUMA: 0,
					ComputeMajor: m.major, ComputeMinor: m.minor,
					PowerLimitW: int(m.limitW), Driver: cmp.Or(s.Driver, gpu.DriverSimulated), Simulated: true, MIG: gpu.ModeOff,
				},
				model:    m,
				capacity: (m.memMiB - m.reservedMiB) << 20,
				context:  m.contextMiB << 20,
			})
			if s.MIG {
				c := b.cards[i]
				c.info.MIG, c.info.Profiles = gpu.ModeOn, m.profiles()
			}
		}
	}
	return b, nil
}

// UUID returns the UUID of simulated GPU i of a node. It never changes, and is no real GPU's:
// those do not begin with 51700000.
func UUID(node string, i int) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%s/%d", node, i))
	return fmt.Sprintf("GPU-51700000-%x-%x-%x-%x", h[0:2], h[2:4], h[4:6], h[6:12])
}

// SocketDir returns the directory that an image job must see at the same path to reach its
// GPUs.
func (p *Provider) SocketDir() string { return filepath.Dir(p.cfg.Socket) }

// Inventory implements gpu.Provider.
func (p *Provider) Inventory(context.Context) ([]gpu.Card, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []gpu.Card
	for _, c := range p.bank.cards {
		if c.of == nil {
			out = append(out, p.bank.withInstances(c))
		}
	}
	return out, nil
}

// Usage implements gpu.Provider. After a restart of the agent it counts a process again once
// its client has reconnected, within about a second.
func (p *Provider) Usage(context.Context) ([]gpu.Usage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	return p.bank.usage(), nil
}

// Admit implements gpu.Provider. Memory is capped, unless the provider is Unenforced: an
// attempt is refused what exceeds its share, and grants whose sum exceeds the GPU are refused
// here. Compute is not capped; the share is informational.
func (p *Provider) Admit(_ context.Context, g gpu.Grant) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	if err := p.bank.admit(g); err != nil {
		return nil, err
	}
	return append(gpu.Env(g),
		wire.EnvSocket+"="+p.cfg.Socket,
		wire.EnvAttempt+"="+g.Attempt), nil
}

// Regrant implements gpu.Regranter.
func (p *Provider) Regrant(_ context.Context, g gpu.Grant) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	return p.bank.regrant(g)
}

// Retire implements gpu.Provider. Remaining processes of the attempt lose their connection and
// their memory.
func (p *Provider) Retire(_ context.Context, attempt string) error {
	p.mu.Lock()
	p.settle()
	var drop []*conn
	for _, cl := range p.bank.retire(attempt) {
		if c := p.connOf(cl); c != nil {
			drop = append(drop, c)
		}
	}
	p.mu.Unlock()
	for _, c := range drop {
		c.nc.Close()
	}
	return nil
}

// Account implements gpu.Accountant.
func (p *Provider) Account(_ context.Context, attempt string) ([]gpu.Account, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	return p.bank.account(attempt)
}

// Busy returns the integral of a GPU's utilization since the provider began and the time since
// then: the difference of two calls gives the mean utilization between them.
func (p *Provider) Busy(uuid string) (busy, since time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	c := p.bank.card(uuid)
	if c == nil {
		return 0, 0, fmt.Errorf("%w: %s", gpu.ErrUnknownCard, uuid)
	}
	return c.busy.total, p.bank.now, nil
}

// Close ends the service. Clients look for the next agent for a while.
func (p *Provider) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.done)
	open := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	err := p.ln.Close()
	for _, c := range open {
		c.nc.Close()
	}
	p.wg.Wait()
	return err
}

// listen opens the socket for every user. It replaces a socket left behind by a dead agent, but
// nothing else.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	switch st, err := os.Lstat(path); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	case st.Mode().Type() != os.ModeSocket:
		return nil, fmt.Errorf("%s exists and is no socket; remove it or configure another path", path)
	default:
		if nc, err := net.DialTimeout("unix", path, time.Second); err == nil {
			nc.Close()
			return nil, fmt.Errorf("%s is served by another agent; give each its own path", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove stale socket: %w", err)
		}
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil { // #nosec G302 -- who may use which card is decided by the peer's user id
		ln.Close()
		return nil, err
	}
	return ln, nil
}

var _ fmt.Stringer = Spec{}

// String formats s as ParseSpecs parses it.
func (s Spec) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%dx%s", s.Count, s.Type)
	if s.MemMiB != 0 {
		fmt.Fprintf(&b, ":%d", s.MemMiB)
	}
	if s.Driver != "" {
		b.WriteString(":driver=" + s.Driver)
	}
	if s.MIG {
		b.WriteString(":mig")
	}
	return b.String()
}
