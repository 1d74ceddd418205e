package agent

import (
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster"
)

// sessionWatcher knows when users last typed something in an attempt, and tells
// those who are there something; package relay's server is one.
type sessionWatcher interface {
	LastInput(id cluster.AttemptID) time.Time
	Tell(id cluster.AttemptID, text string)
}

// gpuBusy remembers when attempts last used a GPU.
type gpuBusy struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// observe takes what the cards show: a card that computes counts for all who are
// on it, since drivers do not tell whose work it is.
func (b *gpuBusy) observe(now time.Time, usage []gpu.Usage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range usage {
		for _, p := range usage[i].Processes {
			if p.Attempt != "" && usage[i].UtilMilli > 0 {
				b.last[p.Attempt] = now
			}
		}
	}
}

func (b *gpuBusy) of(id string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last[id]
}

func (b *gpuBusy) drop(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.last, id)
}

// idleFor reports whether a session stood idle for its limit, and else when to ask
// again. Who is there is warned before.
func (t *task) idleFor(now time.Time) (over bool, wait time.Duration) {
	if t.idle.Limit == 0 {
		return false, attempt.LookEvery
	}
	a := attempt.Activity{Computed: t.agent.gpuBusy.of(t.id.String()), CPU: -1}
	w, ok := t.agent.cfg.Visitors.(sessionWatcher)
	if ok {
		a.Typed = w.LastInput(t.id)
	}
	if g := groupOf(t.rt, t.id); g != nil {
		a.CPU = g.CPUTime()
	}
	over, wait, warning := t.idle.Look(now, a)
	if ok && warning != "" {
		w.Tell(t.id, warning)
	}
	return over, wait
}
