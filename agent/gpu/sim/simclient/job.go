package simclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu/sim/wire"
)

// ErrTerminated says that a job's context ended before its work.
var ErrTerminated = errors.New("terminated")

// Kind is what an Event does.
type Kind string

// The kinds of events.
const (
	EventAlloc   Kind = "alloc"
	EventFree    Kind = "free"
	EventCompute Kind = "compute"
)

// Event is one step of a recorded program.
type Event struct {
	Op Kind
	// ID and Bytes belong to alloc, ID alone to free. Allocating a live id does nothing, so
	// that a loop keeps the weights of its first iteration.
	ID    uint32
	Bytes int64
	// Card is the position of the GPU in the job's list.
	Card int
	// WorkSeconds is time on the reference GPU (A100) at UtilMilli of it.
	WorkSeconds float64
	UtilMilli   int64
}

// Job is a program for simulated GPUs. It has two forms: with Events it replays them Steps
// times; without, it takes GPUMemMiB on each of its GPUs and computes for Seconds.
type Job struct {
	// GPUMemMiB is the peak on each GPU as the driver shows it, including the CUDA context: a
	// job needs a share of exactly this size. The context is taken even if it is larger.
	GPUMemMiB int64
	UtilMilli int64   // 1-1000
	Seconds   float64 // of work on the reference GPU (A100), ramp included
	// RampSeconds is the part of Seconds over which memory grows to its peak, as in the first
	// steps of training; 0 takes it all at once.
	RampSeconds float64

	Events []Event
	Steps  int

	// Told, if not nil, is called about twice a second with the work done.
	Told func(done time.Duration)
}

// rampSteps is the number of pieces in which the memory is taken.
const rampSteps = 8

// reports is about how many progress lines a job prints.
const reports = 20

// Validate reports everything that is wrong with j.
func (j Job) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	maxSeconds := wire.MaxWork.Seconds()
	if len(j.Events) == 0 {
		if j.GPUMemMiB < 0 || j.GPUMemMiB > wire.MaxBytes>>20 {
			bad("GPU memory %d MiB is outside 0-%d", j.GPUMemMiB, int64(wire.MaxBytes>>20))
		}
		if j.UtilMilli < 1 || j.UtilMilli > 1000 {
			bad("GPU utilization %d thousandths is outside 1-1000", j.UtilMilli)
		}
		if !(j.Seconds >= 0 && j.Seconds <= maxSeconds) {
			bad("work %v s is outside 0-%.0f", j.Seconds, maxSeconds)
		}
		if !(j.RampSeconds >= 0 && j.RampSeconds <= j.Seconds) {
			bad("ramp %v s is outside 0-%v, the work it is a part of", j.RampSeconds, j.Seconds)
		}
		return errors.Join(errs...)
	}
	if j.Steps < 1 {
		bad("steps %d: replaying events needs at least 1", j.Steps)
	}
	sum := 0.0
	for i, e := range j.Events {
		sum += e.WorkSeconds
		switch {
		case e.Op != EventAlloc && e.Op != EventFree && e.Op != EventCompute:
			bad("event %d: unknown op %.20q; known: alloc, free, compute", i, e.Op)
		case e.Op == EventAlloc && (e.Bytes < 1 || e.Bytes > wire.MaxBytes || e.Card < 0 || e.Card >= wire.MaxCards):
			bad("event %d: alloc of %d bytes on card %d: bytes are 1-%d, cards 0-%d", i, e.Bytes, e.Card, int64(wire.MaxBytes), wire.MaxCards-1)
		case e.Op == EventCompute && !(e.WorkSeconds >= 0 && e.WorkSeconds <= maxSeconds):
			bad("event %d: work %v s is outside 0-%.0f", i, e.WorkSeconds, maxSeconds)
		case e.Op == EventCompute && (e.UtilMilli < 1 || e.UtilMilli > 1000):
			bad("event %d: utilization %d thousandths is outside 1-1000", i, e.UtilMilli)
		}
	}
	if sum*float64(j.Steps) > maxSeconds {
		bad("%d steps of %v s are more than %.0f s of work", j.Steps, sum, maxSeconds)
	}
	return errors.Join(errs...)
}

// Run runs the job on GPUs reached by cfg and writes progress lines to out. A refused
// allocation prints PyTorch's line and returns ErrOutOfMemory. If ctx ends first, Run returns
// its memory and ErrTerminated.
func (j Job) Run(ctx context.Context, cfg Config, out io.Writer) error {
	if err := j.Validate(); err != nil {
		return err
	}
	err := j.run(ctx, cfg, out)
	switch {
	case err == nil:
		fmt.Fprintln(out, "done")
	case ctx.Err() != nil:
		fmt.Fprintln(out, "terminated")
		return fmt.Errorf("%w: %w", ErrTerminated, err)
	default:
		fmt.Fprintln(out, err)
	}
	return err
}

// ExitCode returns the exit code of a program that ran a job: 0, 143 as a shell reports
// SIGTERM, otherwise 1.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrTerminated):
		return 143
	default:
		return 1
	}
}

func (j Job) run(ctx context.Context, cfg Config, out io.Writer) error {
	began := time.Now()
	c, err := Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	for i, k := range c.Cards() {
		fmt.Fprintf(out, "GPU %d: %s (%s), %.1f GiB\n", i, k.Name, k.UUID, float64(k.TotalBytes)/(1<<30))
	}
	p := &printer{out: out, began: began, total: j.total(), told: j.Told}
	if len(j.Events) > 0 {
		return j.replay(ctx, c, p)
	}
	return j.ramp(ctx, c, p)
}

// total returns the work of the whole job.
func (j Job) total() time.Duration {
	if len(j.Events) == 0 {
		return seconds(j.Seconds)
	}
	var sum time.Duration
	for _, e := range j.Events {
		sum += seconds(e.WorkSeconds)
	}
	return sum * time.Duration(j.Steps)
}

// ramp is the first form of a job.
func (j Job) ramp(ctx context.Context, c *Client, p *printer) error {
	for step := range int64(rampSteps) {
		for card, k := range c.cards {
			bytes := max(0, j.GPUMemMiB<<20-k.ContextBytes)
			n := cut(bytes, step+1) - cut(bytes, step)
			if n == 0 {
				continue
			}
			if _, err := c.Alloc(ctx, card, n); err != nil {
				return err
			}
		}
		if j.RampSeconds > 0 {
			if err := p.compute(ctx, c, j.UtilMilli, seconds(j.RampSeconds/rampSteps)); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(p.out, "holds %d MiB on each of %d GPUs\n", j.GPUMemMiB, len(c.cards))
	return p.compute(ctx, c, j.UtilMilli, max(0, p.total-p.done))
}

// cut returns how much of bytes is taken after the given number of steps. Pieces are whole
// blocks: rounded up one by one, they would exceed the share of a job that requested exactly
// what it needs.
func cut(bytes, steps int64) int64 {
	if steps == rampSteps {
		return bytes
	}
	return bytes * steps / rampSteps / wire.Block * wire.Block
}

// replay is the second form of a job.
func (j Job) replay(ctx context.Context, c *Client, p *printer) error {
	live := map[uint32]uint32{} // the trace's id → the client's
	for range j.Steps {
		for i, e := range j.Events {
			var err error
			id, isLive := live[e.ID]
			switch {
			case e.Op == EventCompute:
				err = p.compute(ctx, c, e.UtilMilli, seconds(e.WorkSeconds))
			case e.Op == EventAlloc && !isLive:
				if e.Card >= len(c.cards) {
					return fmt.Errorf("event %d: card %d of %d", i, e.Card, len(c.cards))
				}
				live[e.ID], err = c.Alloc(ctx, e.Card, e.Bytes)
			case e.Op == EventFree && isLive:
				delete(live, e.ID)
				err = c.Free(ctx, id)
			case e.Op == EventFree:
				err = fmt.Errorf("event %d: free of %d, which is not allocated", i, e.ID)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// printer computes and reports progress, about every twentieth of the job.
type printer struct {
	out   io.Writer
	began time.Time
	total time.Duration
	done  time.Duration
	next  time.Duration // the next amount that gets a line
	told  func(done time.Duration)
}

func (p *printer) compute(ctx context.Context, c *Client, util int64, work time.Duration) error {
	if work <= 0 {
		return nil
	}
	base := p.done
	err := c.Run(ctx, util, work, func(g Progress) {
		p.done = base + g.Done
		if p.told != nil {
			p.told(p.done)
		}
		if p.done < p.next {
			return
		}
		p.next = p.done + p.total/reports
		fmt.Fprintf(p.out, "progress %3d%%  %.1f of %.1f s of work in %.1f s\n",
			(100*p.done+p.total/2)/max(p.total, 1), p.done.Seconds(), p.total.Seconds(), time.Since(p.began).Seconds())
	})
	if err == nil {
		p.done = base + work
	}
	return err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
