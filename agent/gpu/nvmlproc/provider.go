package nvmlproc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// Config says how to reach the driver. Zero times and counts mean the defaults given here.
type Config struct {
	// Command runs Serve in a separate process. Env is its whole environment.
	Command, Env []string
	// Deadline is how long the driver may take for one answer, 5 s. Misses is how many
	// unanswered questions in a row make the GPUs unknown, 3.
	Deadline time.Duration
	Misses   int
	// StartTimeout is how long the driver may take to load, 30 s: without persistence mode
	// it initializes every GPU first.
	StartTimeout time.Duration
	// A child is restarted after FirstBackoff, 250 ms, and later each time that it is
	// abandoned, up to LastBackoff, 30 s.
	FirstBackoff, LastBackoff time.Duration
	// Owners is called before the driver lists the processes of its GPUs, and the function
	// that it returns fills in their owners; nil leaves them unnamed. owner.Finder's Mark
	// is one.
	Owners func() func(usage []gpu.Usage)
	Log    *slog.Logger

	// kill ends a process; tests simulate one that cannot be killed.
	kill func(*os.Process) error
	// late says when the time for an answer is over, and until stop; tests end it when the
	// driver hangs, however slow the machine is.
	late func(time.Duration) (over <-chan time.Time, stop func())
	// patience is how long Inventory waits before it answers from memory, 1 s.
	patience time.Duration
}

// maxStuck is how many children may hang in the kernel, unkillable, before no more are
// started: each holds memory, and a driver in that state needs a reboot.
const maxStuck = 3

func (c *Config) fill() {
	or := func(d *time.Duration, usual time.Duration) {
		*d = cmp.Or(*d, usual)
	}
	or(&c.Deadline, 5*time.Second)
	or(&c.StartTimeout, 30*time.Second)
	or(&c.patience, time.Second)
	or(&c.FirstBackoff, 250*time.Millisecond)
	or(&c.LastBackoff, 30*time.Second)
	c.Misses = cmp.Or(c.Misses, 3)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("component", "nvml")
	if c.late == nil {
		c.late = func(d time.Duration) (<-chan time.Time, func()) {
			t := time.NewTimer(d)
			return t.C, func() { t.Stop() }
		}
	}
	if c.kill == nil {
		c.kill = (*os.Process).Kill
	}
}

// Provider reports NVIDIA GPUs through a child process. One goroutine owns the child and
// asks it one question at a time; callers wait no longer than their context allows.
type Provider struct {
	cfg      Config
	log      *slog.Logger
	requests chan *request
	quit     chan struct{}
	done     chan struct{} // closed when the loop has ended
	closing  sync.Once
	events   *eventQueue
	cards    *cards
	loop     loop
}

var (
	_ gpu.Provider     = (*Provider)(nil)
	_ gpu.EventSource  = (*Provider)(nil)
	_ gpu.HealthReader = (*Provider)(nil)
	_ gpu.StateSource  = (*Provider)(nil)
	_ gpu.Tuner        = (*Provider)(nil)
	_ gpu.Cutter       = (*Provider)(nil)
)

// request is a caller's question.
type request struct {
	ctx   context.Context
	kind  kind
	body  []byte // of a tune or a cut
	reply chan result
}

type result struct {
	answer answer
	err    error
}

var errClosed = errors.New("nvml: provider is closed")

// Open starts the child and waits until the driver is loaded, at most StartTimeout. Errors
// wrap gpu.ErrNoDriver when the node has no driver; a driver that does not answer is no
// error: its GPUs appear when it does.
func Open(ctx context.Context, cfg Config) (*Provider, error) {
	if len(cfg.Command) == 0 {
		return nil, errors.New("nvml: no command for the driver's process")
	}
	cfg.fill()
	p := &Provider{
		cfg: cfg, log: cfg.Log, requests: make(chan *request), quit: make(chan struct{}), done: make(chan struct{}),
		events: newEventQueue(), cards: newCards(cfg.Misses, cfg.Log),
	}
	p.cards.events = p.events
	p.loop = loop{p: p, backoff: cfg.FirstBackoff}
	go p.loop.run()
	ctx, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	for {
		_, err := p.ask(ctx, kindInventory, nil)
		switch {
		case errors.Is(err, gpu.ErrNoDriver):
			return nil, errors.Join(err, p.Close())
		case err == nil || ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			if err != nil {
				p.log.Error("the driver does not answer; jobs that run are left alone, no card is offered until it does", "err", err)
			}
			return p, nil
		case ctx.Err() != nil:
			return nil, errors.Join(err, p.Close())
		}
	}
}

// Inventory implements gpu.Provider. GPUs that cannot be read now are returned as they were
// last, with an error each; States distinguishes them.
func (p *Provider) Inventory(ctx context.Context) ([]gpu.Card, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.patience)
	defer cancel()
	a, err := p.ask(ctx, kindInventory, nil)
	return p.cards.inventory(), errors.Join(err, errorsOf(a.Faults), p.cards.unseen())
}

// Usage implements gpu.Provider.
func (p *Provider) Usage(ctx context.Context) ([]gpu.Usage, error) {
	name := func([]gpu.Usage) {}
	if p.cfg.Owners != nil {
		name = p.cfg.Owners()
	}
	a, err := p.ask(ctx, kindUsage, nil)
	if err != nil {
		return nil, err
	}
	name(a.Usage)
	return a.Usage, errorsOf(a.Faults)
}

// Health implements gpu.HealthReader.
func (p *Provider) Health(ctx context.Context) ([]gpu.Health, error) {
	a, err := p.ask(ctx, kindHealth, nil)
	if err != nil {
		return nil, err
	}
	return a.Health, errorsOf(a.Faults)
}

// Tuning implements gpu.Tuner.
func (p *Provider) Tuning(ctx context.Context, uuid string) (gpu.Tuning, error) {
	return p.tune(ctx, tune{UUID: uuid})
}

// SetPowerLimit implements gpu.Tuner.
func (p *Provider) SetPowerLimit(ctx context.Context, uuid string, milliW int64) error {
	_, err := p.tune(ctx, tune{UUID: uuid, SetMilliW: milliW})
	return err
}

// LockClock implements gpu.Tuner.
func (p *Provider) LockClock(ctx context.Context, uuid string, mhz int64) error {
	_, err := p.tune(ctx, tune{UUID: uuid, LockMHz: &mhz})
	return err
}

func (p *Provider) tune(ctx context.Context, q tune) (gpu.Tuning, error) {
	f, err := encode(kindTune, 0, q)
	if err != nil {
		return gpu.Tuning{}, err
	}
	a, err := p.ask(ctx, kindTune, f.body)
	if err != nil {
		return gpu.Tuning{}, err
	}
	return a.Tuning, errorsOf(a.Faults)
}

// Cut implements gpu.Cutter.
func (p *Provider) Cut(ctx context.Context, c gpu.Cut) error {
	if err := c.Check(); err != nil {
		return err
	}
	f, err := encode(kindCut, 0, c)
	if err != nil {
		return err
	}
	a, err := p.ask(ctx, kindCut, f.body)
	return errors.Join(err, errorsOf(a.Faults))
}

// Events implements gpu.EventSource.
func (p *Provider) Events() <-chan gpu.Event { return p.events.out }

// States implements gpu.StateSource.
func (p *Provider) States() []gpu.CardState { return p.cards.states() }

// Changed implements gpu.StateSource.
func (p *Provider) Changed() <-chan struct{} { return p.cards.changed }

// Admit implements gpu.Provider. It changes nothing on the GPU and asks nothing: the grant
// is enforced by the scheduler's ledger, by device rules and by watching Usage. It refuses
// a GPU that does not answer with gpu.ErrSilent, and a lost one with gpu.ErrLost.
func (p *Provider) Admit(_ context.Context, g gpu.Grant) ([]string, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	for _, c := range g.Cards {
		if err := p.cards.usable(c.UUID); err != nil {
			return nil, fmt.Errorf("grant of %s: %w", g.Attempt, err)
		}
	}
	return gpu.Env(g), nil
}

// Retire implements gpu.Provider; there is nothing to undo.
func (p *Provider) Retire(context.Context, string) error { return nil }

// Close ends the child and closes the channel of events. It does not wait for a child that
// hangs in the kernel.
func (p *Provider) Close() error {
	p.closing.Do(func() { close(p.quit) })
	<-p.done
	return nil
}

// ask has the loop send a question to the child.
func (p *Provider) ask(ctx context.Context, k kind, body []byte) (answer, error) {
	r := &request{ctx: ctx, kind: k, body: body, reply: make(chan result, 1)}
	select {
	case p.requests <- r:
	case <-ctx.Done():
		return answer{}, fmt.Errorf("%w: %s: the driver is busy with another question: %w", gpu.ErrSilent, k, ctx.Err())
	case <-p.quit:
		return answer{}, errClosed
	}
	select {
	case a := <-r.reply:
		return a.answer, a.err
	case <-ctx.Done():
		return answer{}, fmt.Errorf("%w: %s: %w", gpu.ErrSilent, k, ctx.Err())
	case <-p.done:
		return answer{}, errClosed
	}
}

func errorsOf(fs []fault) error {
	var errs []error
	for _, f := range fs {
		errs = append(errs, f.err())
	}
	return errors.Join(errs...)
}
