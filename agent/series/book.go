// Package series keeps the time series of a node's GPUs: the last hour in detail, in memory,
// and the last week in files that outlive the agent.
package series

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster/series"
)

const (
	// maxCards bounds the GPUs of a node that are kept, some of which may be slices that no
	// longer exist.
	maxCards = 64
	// goneAfter is how long a GPU must not have been seen before another may take its place.
	goneAfter = 10 * time.Minute
	// suffix ends the names of the files, one for each GPU; a GPU whose name is longer than
	// maxName has none.
	suffix  = ".week"
	maxName = 200
	// maxWork bounds what waits to be written: two samples of each GPU.
	maxWork = 2 * maxCards
)

// Book holds the time series of a node's GPUs. It is safe for concurrent use.
type Book struct {
	dir  string
	log  *slog.Logger
	work chan change
	once sync.Once // for the warning

	mu    sync.Mutex
	cards map[string]*card
}

// card has the ring buffers of one GPU.
type card struct {
	fine, coarse *series.Ring
	seen         time.Time
}

// change is a sample to write, or the removal of a GPU's file.
type change struct {
	card   string
	sample series.Sample
	remove bool
}

func newCard() *card {
	return &card{
		fine:   series.NewRing(series.FineStep, series.FineSteps),
		coarse: series.NewRing(series.CoarseStep, series.CoarseSteps),
	}
}

// Open reads what an earlier agent wrote to dir, which need not exist, and removes what is
// older than a week at now. It skips what cannot be read.
func Open(dir string, now time.Time, log *slog.Logger) *Book {
	b := &Book{dir: dir, log: log.With("component", "series"), work: make(chan change, maxWork), cards: map[string]*card{}}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		b.warn(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		b.warn(err)
	}
	for _, f := range files {
		name, ours := strings.CutSuffix(f.Name(), suffix)
		uuid, err := url.PathUnescape(name)
		if !ours || err != nil || !f.Type().IsRegular() {
			continue
		}
		c, newest := b.read(f.Name())
		switch {
		case newest <= now.Add(-series.Week).Unix(): // one written by a clock that is ahead stays
			if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
				b.warn(err)
			}
		case len(b.cards) < maxCards:
			b.cards[uuid] = c
		}
	}
	return b
}

// read restores a GPU from its file, as far as that is valid, and returns the time of its
// newest sample.
func (b *Book) read(name string) (c *card, newest int64) {
	c = newCard()
	f, err := os.OpenFile(filepath.Join(b.dir, name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		b.warn(err)
		return c, 0
	}
	defer func() { _ = f.Close() }() // it was only read
	data := make([]byte, series.CoarseSteps*series.Size)
	n, _ := f.ReadAt(data, 0) // what is missing is unknown
	for i := range n / series.Size {
		m := series.Decode(data[i*series.Size:])
		if c.coarse.Place(max(0, m.At)) == i && c.coarse.Put(m) {
			newest = max(newest, m.At)
		}
	}
	c.seen = time.Unix(newest, 0)
	return c, newest
}

// Observe takes a sample of the GPUs. It is meant to be registered with the agent's sampler,
// and does not wait for the disk.
func (b *Book) Observe(now time.Time, usage []gpu.Usage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range usage {
		u := &usage[i]
		c := b.cards[u.UUID]
		if c == nil {
			if !b.room(now) {
				continue
			}
			c = newCard()
			b.cards[u.UUID] = c
		}
		c.seen = now
		v := series.Reading{UsedMiB: u.UsedMiB, UtilMilli: u.UtilMilli, PowerW: u.PowerW}
		c.fine.Add(now, v)
		if m, ok := c.coarse.Add(now, v); ok {
			b.later(change{card: u.UUID, sample: m})
		}
	}
}

// room reports whether another GPU can be kept, if necessary in place of one that has gone. The
// caller holds b.mu.
func (b *Book) room(now time.Time) bool {
	if len(b.cards) < maxCards {
		return true
	}
	oldest, at := "", now.Add(-goneAfter)
	for uuid, c := range b.cards {
		if c.seen.Before(at) {
			oldest, at = uuid, c.seen
		}
	}
	if oldest == "" {
		return false
	}
	delete(b.cards, oldest)
	b.later(change{card: oldest, remove: true})
	return true
}

// later leaves a change to Run; it is lost if the disk hangs.
func (b *Book) later(c change) {
	select {
	case b.work <- c:
	default:
		b.warn(errors.New("the disk does not answer"))
	}
}

// Run writes changes until ctx ends, and then the unfinished steps.
func (b *Book) Run(ctx context.Context) error {
	for {
		select {
		case c := <-b.work:
			b.write(c)
		case <-ctx.Done():
			for len(b.work) > 0 {
				b.write(<-b.work)
			}
			for _, c := range b.going() {
				b.write(c)
			}
			return ctx.Err()
		}
	}
}

func (b *Book) going() (out []change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uuid, c := range b.cards {
		if m, ok := c.coarse.Going(); ok {
			out = append(out, change{card: uuid, sample: m})
		}
	}
	return out
}

// write makes one change, in place: a crash in the middle damages one sample.
func (b *Book) write(c change) {
	name := url.PathEscape(c.card)
	if len(name) > maxName {
		return
	}
	path := filepath.Join(b.dir, name+suffix)
	if c.remove {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.warn(err)
		}
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err == nil {
		place := c.sample.At / int64(series.CoarseStep/time.Second) % series.CoarseSteps
		_, err = f.WriteAt(series.Encode(c.sample), place*series.Size)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		b.warn(err)
	}
}

// warn warns once that files fail: nothing else depends on them.
func (b *Book) warn(err error) {
	b.once.Do(func() {
		b.log.Warn("what the cards showed is not kept, or not all of it, beyond this agent's life", "dir", b.dir, "err", err)
	})
}

// Of returns the samples of a GPU within the last week from one time to another: in detail for
// the last hour, as far as this agent was running, and coarsely before. Times increase. Coarse
// steps are included only if entirely within that time: in the rest of one, another job may
// have had the GPU.
func (b *Book) Of(now time.Time, uuid string, from, to time.Time) []series.Sample {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.cards[uuid]
	if c == nil {
		return nil
	}
	if to.After(now) {
		to = now
	}
	from, near := latest(from, now.Add(-series.Week)), latest(from, now.Add(-series.Hour))
	fine, coarse := c.fine.Of(near, to), c.coarse.Of(from, to)
	past := to.Before(now.Add(-series.FineStep)) // otherwise the last step is unfinished
	coarse = slices.DeleteFunc(coarse, func(m series.Sample) bool {
		end := time.Unix(m.At, 0).Add(series.CoarseStep)
		return m.At < from.Unix() || past && end.After(to) || len(fine) > 0 && m.At >= fine[0].At
	})
	return append(coarse, fine...)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
