package nvmlproc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// Driver is what a child queries; nvml.Provider is one.
type Driver interface {
	Inventory(ctx context.Context) ([]gpu.Card, error)
	Usage(ctx context.Context) ([]gpu.Usage, error)
	Health(ctx context.Context) ([]gpu.Health, error)
	// Watch calls emit with each event until ctx ends or waiting fails. Errors wrap
	// errors.ErrUnsupported when there will never be any.
	Watch(ctx context.Context, emit func(gpu.Event)) error
	Versions() (driver, cuda string)
	gpu.Tuner
	gpu.Cutter
}

// Delays between two attempts to wait for events.
const (
	firstWatchRetry = time.Second
	lastWatchRetry  = time.Minute
)

// Serve is the child's main loop: it opens the driver, reports that, and answers one
// question after another until in ends. It waits for events in parallel, so that a wait
// that never returns blocks no answer. An error of open is reported to the parent and
// returned.
func Serve(in io.Reader, out io.Writer, open func() (Driver, error), log *slog.Logger) error {
	w := &lockedWriter{w: out}
	d, err := open()
	if err != nil {
		h := hello{Error: err.Error(), NoDriver: errors.Is(err, gpu.ErrNoDriver)}
		return errors.Join(err, w.send(kindHello, 0, h))
	}
	var h hello
	h.Driver, h.CUDA = d.Versions()
	if err := w.send(kindHello, 0, h); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Not waited for: a driver call may hang, and the process ends anyway.
	go watch(ctx, d, w, log)
	r := bufio.NewReader(in)
	for {
		q, err := readFrame(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		a, err := reply(ctx, d, q)
		if err != nil {
			return err
		}
		if err := w.send(q.kind, q.id, a); err != nil {
			return err
		}
	}
}

// reply queries the driver. Errors of single GPUs are part of the answer.
func reply(ctx context.Context, d Driver, f frame) (answer, error) {
	var a answer
	var err error
	switch f.kind {
	case kindInventory:
		a.Cards, err = d.Inventory(ctx)
	case kindUsage:
		a.Usage, err = d.Usage(ctx)
	case kindHealth:
		a.Health, err = d.Health(ctx)
	case kindTune:
		q, bad := decodeTune(f)
		if bad != nil {
			return a, bad
		}
		a.Tuning, err = turn(ctx, d, q)
	case kindCut:
		c, bad := decodeCut(f)
		if bad != nil {
			return a, bad
		}
		err = d.Cut(ctx, c)
	default:
		return a, fmt.Errorf("%w: nobody asks for %s", errFrame, f.kind)
	}
	a.Faults = faultsOf(err)
	return a, nil
}

// turn changes a setting, or reads the settings.
func turn(ctx context.Context, d Driver, q tune) (gpu.Tuning, error) {
	switch {
	case q.SetMilliW > 0:
		return gpu.Tuning{}, d.SetPowerLimit(ctx, q.UUID, q.SetMilliW)
	case q.LockMHz != nil:
		return gpu.Tuning{}, d.LockClock(ctx, q.UUID, *q.LockMHz)
	}
	return d.Tuning(ctx, q.UUID)
}

// watch passes events on until ctx ends. A failure to wait is logged and says nothing about
// the GPUs.
func watch(ctx context.Context, d Driver, w *lockedWriter, log *slog.Logger) {
	for pause := firstWatchRetry; ctx.Err() == nil; pause = min(2*pause, lastWatchRetry) {
		began := time.Now()
		err := d.Watch(ctx, func(e gpu.Event) {
			if e.UUID == "" {
				log.Warn("an event of an unknown card", "event", e.Kind.String(), "detail", e.Detail)
				return
			}
			if err := w.send(kindEvent, 0, e); err != nil {
				log.Warn("an event is lost", "gpu", e.UUID, "err", err)
			}
		})
		if errors.Is(err, errors.ErrUnsupported) {
			log.Warn("this driver tells no events", "err", err)
			return
		}
		if time.Since(began) > lastWatchRetry {
			pause = firstWatchRetry
		}
		log.Warn("cannot wait for events", "err", err, "again_in", pause.String())
		wait.Sleep(ctx, pause)
	}
}

// lockedWriter sends the frames of several goroutines, each whole.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) send(k kind, id uint32, v any) error {
	f, err := encode(k, id, v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return f.write(l.w)
}
