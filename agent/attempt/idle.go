package attempt

import (
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

const (
	// idleCPUMilli is the sustained CPU use up to which a session is idle: a shell's prompt
	// and tools that watch a job use less.
	idleCPUMilli = 50
	// idleWarnMost is the longest time before its end that a session is warned; otherwise
	// it is a fifth of the limit.
	idleWarnMost = 5 * time.Minute
	// maxHoldScript is more than the size of a session's packed script.
	maxHoldScript = 512
)

// Idle tracks how long a session has been idle. The zero value is for an attempt that is no
// session.
type Idle struct {
	Limit      time.Duration // 0 for none
	active, at time.Time     // when it was last active, and when cpu was read
	cpu        time.Duration
	warned     bool
}

// IdleLimit returns how long a session may be idle: the shortest of its own limit, its
// partition's and the node's. It is 0 when there is none, or the attempt is no session.
func IdleLimit(as *nodev1.Assignment, node time.Duration) (limit time.Duration) {
	if len(as.GetScript()) == 0 || len(as.Script) > maxHoldScript || as.GetRanks().GetNodeRank() > 0 {
		return 0
	}
	script, err := plainconv.UnpackScript(as.Script)
	if err != nil {
		return 0
	}
	if h, ok := hold.Parse(script); ok {
		for _, d := range []time.Duration{node, h.Idle, as.GetSessionIdle().AsDuration()} {
			if d > 0 && (limit == 0 || d < limit) {
				limit = d
			}
		}
	}
	return limit
}

// Activity is what happens in a session.
type Activity struct {
	Typed, Computed time.Time     // when something was last typed, and a GPU last worked
	CPU             time.Duration // of its processes so far; negative when unknown
}

// Look reports whether a session has been idle for its limit, and otherwise when to look
// again and what to warn its users of, "" for nothing.
func (i *Idle) Look(now time.Time, a Activity) (over bool, wait time.Duration, warning string) {
	if i.active.IsZero() { // also after a restart of the agent
		i.active = now
	}
	i.note(now, a)
	left, warn := i.Limit-now.Sub(i.active), min(idleWarnMost, i.Limit/5)
	switch {
	case left <= 0:
		return true, 0, ""
	case left > warn:
		i.warned = false
		return false, min(left-warn, 5*time.Second), ""
	case !i.warned:
		i.warned = true
		warning = fmt.Sprintf("this session is idle: it ends in %s unless you type or compute something (idle limit %s)", cluster.TimeText(left.Round(time.Second)), cluster.TimeText(i.Limit))
	}
	return false, min(left, time.Second), warning
}

// note records typing and computation on cores and GPUs since the last look.
func (i *Idle) note(now time.Time, a Activity) {
	for _, at := range []time.Time{a.Typed, a.Computed} {
		if at.After(i.active) {
			i.active = at
		}
	}
	passed := now.Sub(i.at)
	if a.CPU < 0 || !i.at.IsZero() && passed < time.Second/2 {
		return
	}
	if !i.at.IsZero() && int64(a.CPU-i.cpu)*1000/int64(passed) > idleCPUMilli {
		i.active = now
	}
	i.cpu, i.at = a.CPU, now
}
