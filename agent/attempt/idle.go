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
	// idleCPUMilli is what a session's processes may use on end and still be
	// idle: a shell's prompt and what watches a job use less.
	idleCPUMilli = 50
	// idleWarnMost is how long before its end a session is warned at most; it is
	// a fifth of the limit otherwise.
	idleWarnMost = 5 * time.Minute
	// maxHoldScript is more than the packed script of a session has.
	maxHoldScript = 512
)

// Idle is how long a session stands idle. The zero value is of what is no session.
type Idle struct {
	Limit      time.Duration // 0 for none
	active, at time.Time     // when it last did something, and when cpu was read
	cpu        time.Duration
	warned     bool
}

// IdleLimit is how long a session may stand idle, 0 when the attempt is none or
// has no limit: the shortest of its own, its partition's and the node's.
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

// Activity is what is done in a session.
type Activity struct {
	Typed, Computed time.Time     // when somebody last typed, and a GPU last worked
	CPU             time.Duration // of its processes so far; negative when not known
}

// Look reports whether a session stood idle for its limit, and else when to look
// again and of what to warn who is there, "" for nothing.
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
		warning = fmt.Sprintf("this session stands idle: it ends in %s unless something is typed or computed (idle limit %s)", cluster.TimeText(left.Round(time.Second)), cluster.TimeText(i.Limit))
	}
	return false, min(left, time.Second), warning
}

// note takes what was typed, computed on cores and on GPUs since.
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
