package cards

import (
	"math"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// longestGap is the longest time between two samples of a GPU that is assumed to have passed at
// the power seen at its ends.
const longestGap = time.Minute

// PowerMeter integrates the power of GPUs, sample by sample. It is safe for concurrent use.
type PowerMeter struct {
	mu    sync.Mutex
	cards map[string]Energy
}

// Energy is the energy counted for a GPU so far.
type Energy struct {
	joules, seconds float64
	watts           int64 // at the last sample
	counter         int64 // of the GPU, in millijoules, gpu.Unknown where it has none
	at              time.Time
}

// NewPowerMeter returns a PowerMeter that has counted nothing.
func NewPowerMeter() *PowerMeter { return &PowerMeter{cards: map[string]Energy{}} }

// Observe takes a sample of the GPUs' power.
func (m *PowerMeter) Observe(now time.Time, usage []gpu.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range usage {
		u := &usage[i]
		if u.PowerW < 0 { // unknown
			continue
		}
		e := m.cards[u.UUID]
		if d := now.Sub(e.at); !e.at.IsZero() && d > 0 && d <= longestGap {
			e.joules += d.Seconds() * float64(e.watts+u.PowerW) / 2
			e.seconds += d.Seconds()
		}
		e.watts, e.counter, e.at = u.PowerW, u.EnergyMJ, now
		m.cards[u.UUID] = e
	}
}

// Mark records the energy of an attempt's GPUs when it begins.
func (m *PowerMeter) Mark(gpus []*nodev1.Share) map[string]Energy {
	m.mu.Lock()
	defer m.mu.Unlock()
	marks := make(map[string]Energy, len(gpus))
	for _, g := range gpus {
		marks[g.Uuid] = m.cards[g.Uuid]
	}
	return marks
}

// Mean returns the watts that each of the marked GPUs has drawn since, for everything that ran
// there; 0 if they were not sampled twice.
func (m *PowerMeter) Mean(marks map[string]Energy) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	joules, seconds := 0.0, 0.0
	for uuid, was := range marks {
		joules += m.cards[uuid].joules - was.joules
		seconds += m.cards[uuid].seconds - was.seconds
	}
	if seconds <= 0 {
		return 0
	}
	return int64(math.Round(joules / seconds))
}

// Drawn returns the energy that GPUs had drawn by a moment near the last sample, in total, in
// joules from an arbitrary origin: by their own counters if all have one, which miss nothing
// between samples. It reports whether all were sampled recently.
func (m *PowerMeter) Drawn(at time.Time, gpus []*nodev1.Share) (joules float64, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counted := true
	for _, g := range gpus {
		counted = counted && m.cards[g.Uuid].counter > 0
	}
	for _, g := range gpus {
		e, has := m.cards[g.Uuid]
		if d := at.Sub(e.at); !has || d < -longestGap || d > longestGap {
			return 0, false
		}
		if counted {
			joules += float64(e.counter) / 1000
		} else {
			joules += e.joules
		}
		joules += float64(e.watts) * at.Sub(e.at).Seconds()
	}
	return joules, len(gpus) > 0
}
