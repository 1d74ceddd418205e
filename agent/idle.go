package agent

import (
	"fmt"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	// idleCPUMilli is what a session's processes may use on end and still be
	// idle: a shell's prompt and what watches a job use less.
	idleCPUMilli = 50
	// idleWarnMost is how long before its end a session is warned at most; it is
	// a fifth of the limit otherwise.
	idleWarnMost = 5 * time.Minute
)

// sessionWatcher knows when users last typed something in an attempt, and tells
// those who are there something; package relay's server is one.
type sessionWatcher interface {
	LastInput(id cluster.AttemptID) time.Time
	Tell(id cluster.AttemptID, text string)
}

// idleState is what a worker knows of how long its session stands idle.
type idleState struct {
	limit  time.Duration
	known  bool
	active time.Time // when it last did something
	cpu    time.Duration
	at     time.Time // when cpu was read
	warned bool
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

// idleLimit is how long a session may stand idle, 0 when the attempt is none or
// has no limit: the shortest of its own, its partition's and the node's.
func (t *task) idleLimit(as *nodev1.Assignment) time.Duration {
	if t.idle.known {
		return t.idle.limit
	}
	t.idle.known = true
	if len(as.GetScript()) == 0 || len(as.Script) > maxHoldScript || as.GetRanks().GetNodeRank() > 0 {
		return 0
	}
	script, err := conv.UnpackScript(as.Script)
	if err != nil {
		return 0
	}
	if h, ok := hold.Parse(script); ok {
		for _, limit := range []time.Duration{t.agent.cfg.IdleLimit, h.Idle, as.GetSessionIdle().AsDuration()} {
			if limit > 0 && (t.idle.limit == 0 || limit < t.idle.limit) {
				t.idle.limit = limit
			}
		}
	}
	return t.idle.limit
}

// maxHoldScript is more than the packed script of a session has.
const maxHoldScript = 512

// idleFor reports whether a session stood idle for its limit, and else when to ask
// again. Who is there is warned before.
func (t *task) idleFor(as *nodev1.Assignment, now time.Time) (over bool, next time.Duration) {
	limit := t.idleLimit(as)
	if limit == 0 {
		return false, attempt.LookEvery
	}
	s := &t.idle
	if s.active.IsZero() { // also after a restart of the agent
		s.active = now
	}
	t.noteActivity(now)
	left := limit - now.Sub(s.active)
	warn := min(idleWarnMost, limit/5)
	switch {
	case left <= 0:
		return true, 0
	case left > warn:
		s.warned = false
		return false, min(left-warn, time.Second*5)
	case !s.warned:
		s.warned = true
		if w, ok := t.agent.cfg.Visitors.(sessionWatcher); ok {
			w.Tell(t.id, fmt.Sprintf("this session stands idle: it ends in %s unless something is typed or computed (idle limit %s)", left.Round(time.Second), limit))
		}
	}
	return false, min(left, time.Second)
}

// noteActivity looks for what was typed, computed on cores and on GPUs since.
func (t *task) noteActivity(now time.Time) {
	s := &t.idle
	later := func(at time.Time) {
		if at.After(s.active) {
			s.active = at
		}
	}
	if w, ok := t.agent.cfg.Visitors.(sessionWatcher); ok {
		later(w.LastInput(t.id))
	}
	later(t.agent.gpuBusy.of(t.id.String()))
	rt, ok := t.rt.(grouped)
	if !ok {
		return
	}
	g := rt.Group(t.id)
	if g == nil {
		return
	}
	cpu := g.CPUTime()
	if passed := now.Sub(s.at); !s.at.IsZero() && passed >= time.Second/2 {
		if int64(cpu-s.cpu)*1000/int64(passed) > idleCPUMilli {
			later(now)
		}
	}
	if s.at.IsZero() || now.Sub(s.at) >= time.Second/2 {
		s.cpu, s.at = cpu, now
	}
}
