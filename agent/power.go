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

// openPower reads the power settings of GPUs that attempts have changed.
func (a *Agent) openPower() (err error) {
	gpus, _ := a.cfg.GPUs.(gpu.Tuner)
	if a.tuned, err = power.Open(a.cfg.Dir, gpus, a.log); err == nil && a.cfg.Failpoint != nil {
		a.tuned.Failpoint(a.cfg.Failpoint)
	}
	return err
}

// setPower sets the power limit and clock that an attempt about to start asked for, on GPUs
// that it has alone. If that fails, the attempt runs without. A cap that is still to be
// found sets nothing yet.
func (t *launching) setPower(ctx context.Context, as *nodev1.Assignment) {
	ask := cluster.GPUPower{Cap: cluster.PowerCap(as.PowerCap), Freq: cluster.GPUFreq(as.GpuFreq)}
	if _, auto := ask.Cap.Slowdown(); auto {
		ask.Cap = ""
	}
	t.tune(ctx, as, ask)
}

// tune applies ask to the GPUs of an attempt, if it has them alone.
func (t *task) tune(ctx context.Context, as *nodev1.Assignment, ask cluster.GPUPower) (set []cluster.CardPower) {
	var uuids []string
	for _, s := range as.Gpus {
		if uuids = append(uuids, s.Uuid); !s.Exclusive {
			ask = cluster.GPUPower{}
		}
	}
	set = t.agent.tuned.Set(ctx, t.id.String(), uuids, ask)
	if t.power = powerToNode(set); t.power != nil {
		t.agent.cards.States.Again() // so that the limits are reported
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
	// saverEvery is how often an attempt whose power cap is being searched is checked for
	// progress.
	saverEvery = 500 * time.Millisecond
	// silentFor is how long an attempt may report no step before its user is told that no
	// cap can be found without steps.
	silentFor = 2 * time.Minute
	// sampledWithin is the age up to which a reported step must have samples of its GPUs.
	sampledWithin = 10 * time.Second
)

// Reasons why no cap was found.
const (
	whyNoSteps = "it says no steps in BERTH_PROGRESS"
	whyEnded   = "it ended before one was found"
	whyNoPower = "the driver does not tell what its GPUs draw"
)

// saver searches for the power cap of a running attempt. It belongs to the attempt's
// worker. The zero value has not begun.
type saver struct {
	search *frugal.Search
	began  time.Time // start of the search
	seen   time.Time // when the attempt reported the step seen last
	over   bool
}

// look continues the search, and returns when to look again.
func (v *saver) look(ctx context.Context, t *running) time.Duration {
	as, _ := t.wants()
	slowdown, auto := cluster.PowerCap(as.GetPowerCap()).Slowdown()
	if !auto || v.over || !t.life.KillAt.IsZero() {
		return attempt.LookEvery
	}
	if as.Found.GetCapW() > 0 { // by the previous agent, which left it set on the GPUs
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

// further records that the attempt has progressed, and sets the next cap.
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

// hold sets the cap that the search asks for. It says why it cannot, or returns "".
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

// giveUp leaves the attempt's GPUs as they were, and reports why.
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

// searchEnds reports why no cap was found for an attempt that is over, where none was. said
// says whether it reported steps.
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
