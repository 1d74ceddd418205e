package cards

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// MemWatch is the watch over the GPU memory of all attempts. It is safe for concurrent use.
type MemWatch struct {
	mu sync.Mutex
	w  *caps.Watcher
}

func newMemWatch(c caps.WatchConfig) *MemWatch {
	return &MemWatch{w: caps.NewWatcher(c)}
}

// Hold begins to watch a running attempt.
func (m *MemWatch) Hold(as *nodev1.Assignment) {
	if len(as.GetGpus()) == 0 {
		return
	}
	limits := make(map[string]caps.Cap, len(as.Gpus))
	for _, s := range as.Gpus {
		limits[s.Uuid] = caps.Cap{MiB: s.MemMib, MostMiB: s.GrantedMib}
		if s.Exclusive {
			limits[s.Uuid] = caps.Cap{}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.w.Hold(conv.AttemptOf(as).String(), limits)
}

// Drop ends what Hold began.
func (m *MemWatch) Drop(attempt string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.w.Drop(attempt)
}

func (m *MemWatch) setUsable(mib map[string]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.w.SetUsable(mib)
}

// Observe takes a sample of the GPUs, and returns the attempts that hold more than their share.
func (m *MemWatch) Observe(now time.Time, usage []gpu.Usage) []caps.Breach {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.w.Observe(now, usage)
}

// Peak returns what an attempt that ended at an instant held where it came nearest to its
// limit, and whether it was watched.
func (m *MemWatch) Peak(attempt string, at time.Time) (caps.Held, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.w.Peak(attempt, at)
}

// Blame returns the attempt other than not that was above its cap on a GPU shortly before an
// instant, or "".
func (m *MemWatch) Blame(uuid, not string, at time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.w.Blame(uuid, not, at)
}

// Short returns which GPU has less free memory than an attempt's share promises, or "". It
// skips a GPU that cannot be read: its health is monitored elsewhere.
func (nc *Cards) Short(ctx context.Context, as *nodev1.Assignment) string {
	if nc.cfg.GPUs == nil || len(as.Gpus) == 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	usage, err := nc.cfg.GPUs.Usage(ctx)
	if err != nil {
		nc.log.Warn("cannot read the use of every GPU", "err", err)
	}
	nc.mu.Lock()
	usable := nc.usable
	nc.mu.Unlock()
	for _, s := range as.Gpus {
		for _, u := range usage {
			free, known := usable[s.Uuid]
			if u.UUID != s.Uuid || !known || s.Exclusive {
				continue
			}
			if free -= u.UsedMiB; free < s.MemMib {
				return fmt.Sprintf("GPU %s: %d MiB free, the share is %d MiB; another process on it holds more than its share", s.Uuid, max(0, free), s.MemMib)
			}
		}
	}
	return ""
}
