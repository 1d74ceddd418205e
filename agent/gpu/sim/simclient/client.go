// Package simclient lets a process use simulated GPUs: it allocates, frees and computes on the
// GPUs of its attempt, and survives restarts of the agent that keeps their accounts.
package simclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu/sim/wire"
)

// Errors that callers distinguish.
var (
	// ErrOutOfMemory says that an allocation was refused; errors.As with *OOMError gives the
	// figures.
	ErrOutOfMemory = errors.New("CUDA out of memory")
	// ErrLost says that no agent answered for Config.Reconnect.
	ErrLost = errors.New("simulated GPU lost")
	// ErrDenied says that the agent answered and refuses this process.
	ErrDenied = errors.New("simulated GPU denied")
	// ErrNoCards says that the environment names no simulated GPUs.
	ErrNoCards = errors.New("no simulated GPU in this environment")
)

// OOMError is a refused allocation.
type OOMError struct {
	Asked  int64 // bytes
	Memory wire.Memory
}

// Error formats the error as PyTorch does, so that whatever searches a log for PyTorch's line
// finds ours.
func (e *OOMError) Error() string {
	m := e.Memory
	s := fmt.Sprintf("CUDA out of memory. Tried to allocate %s (GPU %d; %s total capacity; %s already allocated; %s free",
		gib(e.Asked), m.Card, gib(m.TotalBytes), gib(m.HeldBytes), gib(m.FreeBytes))
	if m.CapBytes != 0 {
		s += fmt.Sprintf("; %s allowed to this job", gib(m.CapBytes))
	}
	return s + ")"
}

// Unwrap returns ErrOutOfMemory.
func (e *OOMError) Unwrap() error { return ErrOutOfMemory }

func gib(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}

// Config says which GPUs to use, and through which socket.
type Config struct {
	Socket  string
	Attempt string
	Cards   []string // UUIDs; later calls name a GPU by its position here
	// Reconnect is how long to look for an agent, at first and after each loss; 0 means a
	// minute.
	Reconnect time.Duration
	// Dial replaces the dialling of Socket in tests.
	Dial func(ctx context.Context) (net.Conn, error)
}

// FromEnv returns the Config that an agent put into a job's environment, given as by
// os.Environ. The error wraps ErrNoCards when there is none.
func FromEnv(environ []string) (Config, error) {
	get := func(key string) string {
		for _, kv := range slices.Backward(environ) {
			if v, ok := strings.CutPrefix(kv, key+"="); ok {
				return v
			}
		}
		return ""
	}
	c := Config{Socket: get(wire.EnvSocket), Attempt: get(wire.EnvAttempt)}
	uuids := get("BERTH_GPU_UUIDS")
	if c.Socket == "" || c.Attempt == "" || uuids == "" {
		return Config{}, fmt.Errorf("%w: %s, %s and BERTH_GPU_UUIDS must be set; run it as a job on a node with simulated GPUs",
			ErrNoCards, wire.EnvSocket, wire.EnvAttempt)
	}
	c.Cards = strings.Split(uuids, ",")
	return c, nil
}

// Client holds one process's contexts on its GPUs. Only one goroutine may use it.
type Client struct {
	cfg    Config
	nc     net.Conn
	cards  []wire.Card
	held   []wire.Alloc // acknowledged allocations, in order
	reqID  uint64
	nextID uint32
}

// Connect opens a context on each GPU. Cancelling ctx later does not affect the Client.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	cfg.Reconnect = cmp.Or(cfg.Reconnect, time.Minute)
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", cfg.Socket)
		}
	}
	c := &Client{cfg: cfg}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Close returns all memory to the GPUs.
func (c *Client) Close() error {
	if c.nc == nil {
		return nil
	}
	return c.nc.Close()
}

// Cards describes the GPUs, in the order of Config.Cards.
func (c *Client) Cards() []wire.Card { return slices.Clone(c.cards) }

// Alloc allocates on the GPU at position card and returns the allocation's id. A refusal is an
// *OOMError.
func (c *Client) Alloc(ctx context.Context, card int, bytes int64) (uint32, error) {
	a := wire.Alloc{ID: c.nextID, Card: card, Bytes: bytes}
	c.nextID++
	rep, err := c.call(ctx, wire.Request{Op: wire.OpAlloc, Alloc: &a}, nil)
	if err != nil {
		return 0, err
	}
	if err := failure(rep, bytes); err != nil {
		return 0, err
	}
	c.held = append(c.held, a)
	return a.ID, nil
}

// Free ends an allocation.
func (c *Client) Free(ctx context.Context, id uint32) error {
	i := slices.IndexFunc(c.held, func(a wire.Alloc) bool { return a.ID == id })
	if i < 0 {
		return fmt.Errorf("free: no allocation %d", id)
	}
	a := c.held[i]
	// Not restated from here on: if the connection is lost before the answer, the memory is
	// free either way.
	c.held = slices.Delete(c.held, i, i+1)
	lost := c.nc
	rep, err := c.call(ctx, wire.Request{Op: wire.OpFree, Alloc: &wire.Alloc{ID: a.ID}}, nil)
	if err != nil {
		return err
	}
	if rep.Code == wire.CodeBad && c.nc != lost {
		return nil // a new agent, which never knew it
	}
	return failure(rep, 0)
}

// Progress is the progress of a run.
type Progress struct {
	Done       time.Duration // of its work
	SpeedMilli int64         // thousandths of the reference GPU; 0 when not reported
}

// Run computes work, in time on the reference GPU, requesting util thousandths of each GPU, and
// returns when it is done. progress, if not nil, is called about twice a second and at the end.
func (c *Client) Run(ctx context.Context, util int64, work time.Duration, progress func(Progress)) error {
	r := wire.Run{UtilMilli: util, Work: work}
	rep, err := c.call(ctx, wire.Request{Op: wire.OpRun, Run: &r}, func(rep wire.Reply) {
		// What is done stays done when another agent has to continue.
		r.Done = min(max(r.Done, rep.Done), r.Work)
		if progress != nil {
			progress(Progress{Done: r.Done, SpeedMilli: rep.SpeedMilli})
		}
	})
	if err != nil {
		return err
	}
	if err := failure(rep, 0); err != nil {
		return err
	}
	if progress != nil {
		progress(Progress{Done: rep.Done})
	}
	return nil
}

// failure returns the error that a final reply stands for; asked is 0 where only the agent
// knows the size.
func failure(rep wire.Reply, asked int64) error {
	switch rep.Code {
	case wire.CodeOK:
		return nil
	case wire.CodeOOM:
		e := &OOMError{Asked: asked}
		if rep.Memory != nil {
			e.Memory = *rep.Memory
		}
		if asked == 0 {
			e.Asked = e.Memory.AskedBytes
		}
		return e
	default:
		return fmt.Errorf("%w: %s", ErrDenied, rep.Msg)
	}
}

// call sends q and returns its final reply. If the connection is lost, it finds the next agent,
// restates what is held, and asks again: the accounts of the lost connection are gone, so
// nothing is done twice.
func (c *Client) call(ctx context.Context, q wire.Request, progress func(wire.Reply)) (wire.Reply, error) {
	for {
		rep, err := c.exchange(ctx, &q, progress)
		if err == nil {
			return rep, nil
		}
		if ctx.Err() != nil {
			return wire.Reply{}, context.Cause(ctx)
		}
		if err := c.connect(ctx); err != nil {
			return wire.Reply{}, err
		}
	}
}

// exchange is one try of call on the current connection.
func (c *Client) exchange(ctx context.Context, q *wire.Request, progress func(wire.Reply)) (wire.Reply, error) {
	nc := c.nc
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	c.reqID++
	q.ID = c.reqID
	if err := wire.Write(nc, q); err != nil {
		return wire.Reply{}, err
	}
	for {
		rep, err := wire.ReadReply(nc)
		if err != nil {
			return wire.Reply{}, err
		}
		switch {
		case rep.ID != q.ID: // of an abandoned request
		case rep.Code == wire.CodeProgress:
			if progress != nil {
				progress(rep)
			}
		default:
			return rep, nil
		}
	}
}

// Delays between tries to find an agent.
const (
	firstWait = 20 * time.Millisecond
	mostWait  = time.Second
)

// connect finds an agent within Config.Reconnect and restates what is held.
func (c *Client) connect(ctx context.Context) error {
	if c.nc != nil {
		c.nc.Close()
	}
	until := time.Now().Add(c.cfg.Reconnect)
	for wait := firstWait; ; wait = min(2*wait, mostWait) {
		err := c.greet(ctx, until)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrDenied), errors.Is(err, ErrOutOfMemory):
			return err
		case !time.Now().Add(wait).Before(until):
			return fmt.Errorf("%w: no agent on %s for %v: %w", ErrLost, c.cfg.Socket, c.cfg.Reconnect, err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// greet is one try of connect.
func (c *Client) greet(ctx context.Context, until time.Time) error {
	dialCtx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	nc, err := c.cfg.Dial(dialCtx)
	if err != nil {
		return err
	}
	c.nc = nc
	nc.SetDeadline(until)
	rep, err := c.exchange(ctx, &wire.Request{Op: wire.OpHello, Hello: &wire.Hello{
		Version: wire.Version, Attempt: c.cfg.Attempt, Cards: c.cfg.Cards, Held: c.held,
	}}, nil)
	if err != nil {
		nc.Close()
		return err
	}
	if rep.Code == wire.CodeUnknown {
		nc.Close()
		return errors.New(rep.Msg) // the agent may still be adopting: try again
	}
	if err := failure(rep, 0); err != nil {
		nc.Close()
		return err
	}
	nc.SetDeadline(time.Time{})
	c.cards = rep.Cards
	return nil
}
