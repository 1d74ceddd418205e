package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/power"
	"github.com/berth-scheduler/berth/agent/power/frugal"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// openPower reads what cards are set to for attempts.
func (a *Agent) openPower() (err error) {
	gpus, _ := a.cfg.GPUs.(gpu.Tuner)
	if a.tuned, err = power.Open(a.cfg.Dir, gpus, a.log); err == nil && a.cfg.Failpoint != nil {
		a.tuned.Failpoint(a.cfg.Failpoint)
	}
	return err
}

// setPower sets the cards of an attempt that is about to start to the power limit and
// clock that it is to have, if they are its own alone. That it can't costs it nothing else.
// A cap that is to be found is none yet.
func (t *launching) setPower(ctx context.Context, as *nodev1.Assignment) {
	ask := cluster.GPUPower{Cap: cluster.PowerCap(as.PowerCap), Freq: cluster.GPUFreq(as.GpuFreq)}
	if _, auto := ask.Cap.Slowdown(); auto {
		ask.Cap = ""
	}
	t.tune(ctx, as, ask)
}

// tune has the cards of an attempt be as ask says, if they are its own alone.
func (t *task) tune(ctx context.Context, as *nodev1.Assignment, ask cluster.GPUPower) (set []cluster.CardPower) {
	var uuids []string
	for _, s := range as.Gpus {
		if uuids = append(uuids, s.Uuid); !s.Exclusive {
			ask = cluster.GPUPower{}
		}
	}
	set = t.agent.tuned.Set(ctx, t.id.String(), uuids, ask)
	if t.power = powerToNode(set); t.power != nil {
		t.agent.cards.States.Again() // for the limits to be told
	}
	return set
}

func powerToNode(cards []cluster.CardPower) (out []*nodev1.CardPower) {
	for _, p := range cards {
		out = append(out, &nodev1.CardPower{Uuid: string(p.GPU), CapW: p.CapW, ClockMhz: p.ClockMHz, Why: p.Why})
	}
	return out
}

const (
	// saverEvery is how often it is looked whether an attempt came further whose cap is
	// searched for.
	saverEvery = 500 * time.Millisecond
	// silentFor is how long an attempt may say no step until its user is told that no cap
	// can be found without.
	silentFor = 2 * time.Minute
	// sampledWithin is after how long a step that was just said must have had its cards
	// looked at.
	sampledWithin = 10 * time.Second
)

// Why no cap was found.
const (
	whyNoSteps = "it says no steps in BERTH_PROGRESS"
	whyEnded   = "it ended before one was found"
	whyNoPower = "the driver does not tell what its GPUs draw"
)

// saver searches for the power cap of a running attempt. It belongs to its worker. The zero
// value has not begun.
type saver struct {
	search *frugal.Search
	began  time.Time // the search
	seen   time.Time // when the attempt said what was seen last
	over   bool
}

// look takes the search further, and returns when to look again.
func (v *saver) look(ctx context.Context, t *running) time.Duration {
	as, _ := t.wants()
	slowdown, auto := cluster.PowerCap(as.GetPowerCap()).Slowdown()
	if !auto || v.over || !t.life.KillAt.IsZero() {
		return attempt.LookEvery
	}
	if as.Found.GetCapW() > 0 { // by the agent before this one, which left the cards with it
		t.search, v.over = as.Found, true
		return attempt.LookEvery
	}
	if len(as.GetRanks().GetNodes()) > 1 {
		return v.giveUp(ctx, t, as, "it runs on several nodes")
	}
	step, at, said := t.agent.progress.Last(t.id)
	switch {
	case !said && time.Since(t.life.Started) > silentFor && t.search == nil:
		t.search = &nodev1.CapSearch{Why: whyNoSteps}
		t.sayRunning()
		return attempt.LookEvery
	case !said:
		return saverEvery
	case v.search == nil:
		v.search, v.began = frugal.New(frugal.Usual(slowdown), conv.CapSearchFromNode(as.FoundBefore)), time.Now()
		t.log.Info("the power cap is searched for", "slowdown_percent", slowdown)
		if why := v.hold(ctx, t, as); why != "" {
			return v.giveUp(ctx, t, as, why)
		}
	}
	if v.search.Late(time.Now()) {
		return v.giveUp(ctx, t, as, "its steps take too long to measure one cap after the other")
	}
	if at.Equal(v.seen) {
		return saverEvery
	}
	joules, known := t.agent.power.Drawn(at, as.Gpus)
	switch {
	case !known && time.Since(v.began) > silentFor && time.Since(at) < sampledWithin:
		return v.giveUp(ctx, t, as, whyNoPower)
	case !known:
		return saverEvery
	}
	v.seen = at
	return v.further(ctx, t, as, frugal.Seen{At: at, Step: step, Joules: joules})
}

// further takes over that the attempt came further, and holds the next cap.
func (v *saver) further(ctx context.Context, t *running, as *nodev1.Assignment, now frugal.Seen) time.Duration {
	if !v.search.Step(now) {
		return saverEvery
	}
	if why := v.hold(ctx, t, as); why != "" {
		return v.giveUp(ctx, t, as, why)
	}
	if !v.search.Done() {
		return saverEvery
	}
	found := v.search.Found()
	t.search, v.over = conv.CapSearchToNode(&found), true
	t.log.Info("the power cap is found", "default_w", found.DefaultW, "cap_w", found.CapW)
	t.sayRunning()
	return attempt.LookEvery
}

// hold sets the cap that the search asks for, and says why it cannot be, "" when it is.
func (v *saver) hold(ctx context.Context, t *running, as *nodev1.Assignment) (why string) {
	for {
		percent := v.search.Percent()
		watts := int64(0)
		for _, p := range t.tune(ctx, as, cluster.GPUPower{Cap: cluster.PowerCap(fmt.Sprintf("%d%%", percent)), Freq: cluster.GPUFreq(as.GpuFreq)}) {
			if p.CapW == 0 {
				return p.Why
			}
			watts = max(watts, p.CapW)
		}
		if watts == 0 {
			return "its GPUs are not its own alone"
		}
		if v.search.Held(time.Now(), watts); v.search.Percent() == percent {
			return ""
		}
	}
}

// giveUp leaves the cards of an attempt with what they had, and says why.
func (v *saver) giveUp(ctx context.Context, t *running, as *nodev1.Assignment, why string) time.Duration {
	v.over = true
	if v.search != nil {
		t.agent.tuned.Leave(ctx, t.id.String())
		t.tune(ctx, as, cluster.GPUPower{Freq: cluster.GPUFreq(as.GpuFreq)})
	}
	t.search = &nodev1.CapSearch{Why: why}
	t.log.Info("no power cap is found", "why", why)
	t.sayRunning()
	return attempt.LookEvery
}

// searchEnds says why an attempt that is over had no cap found, where none was. said is that
// it said steps.
func (t *task) searchEnds(said bool) {
	as, _ := t.wants()
	_, auto := cluster.PowerCap(as.GetPowerCap()).Slowdown()
	switch ran := !t.life.Started.IsZero(); {
	case !auto || !ran || t.search != nil && t.search.Why != whyNoSteps:
	case as.Found.GetCapW() > 0:
		t.search = as.Found
	case t.running.saver.search != nil || said:
		t.search = &nodev1.CapSearch{Why: whyEnded}
	case t.search == nil && slices.ContainsFunc(as.Gpus, func(s *nodev1.Share) bool { return s.Exclusive }):
		t.search = &nodev1.CapSearch{Why: whyNoSteps}
	}
}
