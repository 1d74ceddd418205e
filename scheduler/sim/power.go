package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/power"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// powerEvery is the interval of decisions about which nodes are powered down or up.
const powerEvery = time.Minute

// wakeSpan is the time within which wake-ups count as one, as in the evaluation of
// Helios.
const wakeSpan = 10 * time.Minute

// Power configures how idle nodes are powered down and up again, as the leader of a
// cluster does.
type Power struct {
	power.Rule
	// Boot is how long a node takes from off to ready.
	Boot time.Duration
	// Past is which jobs held nodes from Since until the run begins, for a
	// forecast; times are before Epoch.
	Past  []power.Span
	Since cluster.Time
	// HostW is what a node draws besides its GPUs while it is up or boots, OffW
	// what it draws while it is off, in watts.
	HostW, OffW int64
}

// Epoch is the time of the snapshots at which a run begins.
const Epoch = epoch

// check returns an error for what makes no sense.
func (p *Power) check() error {
	switch f := p.Forecast; {
	case p.Idle <= 0 || p.Boot < 0 || p.KeepIdle < 0 || p.AtOnce < 1:
		return fmt.Errorf("power: needs a time above 0 for which a node is idle, and may power down one node a minute or more")
	case p.HostW < 0 || p.OffW < 0:
		return fmt.Errorf("power: a node that draws less than 0 W")
	case f != nil && (f.Every < time.Second || f.Horizon < f.Every || f.Horizon > 7*24*time.Hour || f.Learn < 0 || f.SparePercent < 0 || f.SparePercent > 100):
		return fmt.Errorf("power: a forecast is made every second at most, for a time from that to a week, with 0 to 100 %% of the nodes to spare")
	}
	return nil
}

// plugs tracks which nodes are off.
type plugs struct {
	states []cluster.PowerState
	keeper power.Keeper
	at     int64 // no look is made before
	tick   int64 // when one is made, whatever happens
	off    int   // nodes that are off, booting ones not
	wakes  int
	calls  int   // spans of wakeSpan in which some nodes were woken
	woken  int64 // when the last of them began
	// asked holds since when jobs wait for nodes that are off.
	asked map[cluster.JobID]int64
}

// begin is called before anything happens.
func (g *plugs) begin(e *engine, now cluster.Time) {
	p := e.opt.Power
	g.states, g.asked, g.woken = make([]cluster.PowerState, len(e.nodes)), map[cluster.JobID]int64{}, -1
	snap := e.full()
	snap.Now = now
	g.keeper.Recall(snap, &p.Rule, p.Past, p.Since)
}

// draws returns how much more everything draws if a node is off.
func (g *plugs) draws(e *engine, node int32) float64 {
	w := e.opt.Power.OffW - e.opt.Power.HostW
	for i := range e.slots {
		if e.slots[i].node == node {
			w -= e.slots[i].idleW
		}
	}
	return float64(w)
}

// seen returns a snapshot that knows which nodes are off.
func (g *plugs) seen(e *engine) *dispatch.Snapshot {
	snap := e.full()
	snap.Nodes = slices.Clone(snap.Nodes)
	for i, n := range snap.Nodes {
		if s := g.states[e.nodeAt[n.ID]]; s != cluster.PowerUp {
			off := *n
			off.Power.State = s
			snap.Nodes[i] = &off
		}
	}
	return snap
}

// save powers nodes down and up at this time, if it is due.
func (g *plugs) save(e *engine) error {
	p, now := e.opt.Power, e.wallTime()
	if p == nil || g.at > e.now {
		return nil
	}
	if g.states == nil {
		g.begin(e, now)
	}
	snap := g.seen(e)
	need := site.Needs{}
	if len(snap.Waiting) > 0 && power.Concerns(snap) {
		need = site.NeededBy(snap, func(view *dispatch.Snapshot) dispatch.Plan { return e.opt.Planner.Plan(view) })
	}
	for id := range need.For { // each is recorded on its own
		if _, known := g.asked[id]; !known {
			g.asked[id] = e.now
		}
	}
	g.keeper.Look(snap, &p.Rule, need.Used)
	for _, id := range g.keeper.Up(snap, &p.Rule, need.Wake) {
		g.wake(e, e.nodeAt[id])
	}
	for _, id := range g.keeper.Down(snap, &p.Rule) {
		g.keeper.WentDown(now)
		i := e.nodeAt[id]
		g.off++
		g.states[i] = cluster.PoweredDown
		e.cur.powerW += g.draws(e, i)
		if err := e.st.setNode(now, id, cluster.NodeUnreachable); err != nil {
			return err
		}
	}
	g.again(e, now)
	return nil
}

// wake boots a node.
func (g *plugs) wake(e *engine, i int32) {
	g.keeper.WentUp(e.wallTime())
	if g.wakes++; g.woken < 0 || e.now-g.woken >= wakeSpan.Microseconds() {
		g.calls, g.woken = g.calls+1, e.now
	}
	g.off--
	g.states[i] = cluster.PoweringUp
	e.cur.powerW -= g.draws(e, i)
	e.events.push(event{at: e.now + e.opt.Power.Boot.Microseconds(), id: i, k: evPowerUp})
}

// again sets the time of the next look.
func (g *plugs) again(e *engine, now cluster.Time) {
	p := e.opt.Power
	g.at = e.now + powerEvery.Microseconds()
	g.tick = g.at
	if e.st.waiting() == 0 && !g.keeper.Full(&p.Rule, now) {
		next := g.keeper.Next(&p.Rule, now)
		if next == 0 {
			return // time alone changes nothing
		}
		g.tick = max(g.at, int64(next-epoch))
	}
	e.events.push(event{at: g.tick, k: evPower})
}

// booted registers a node that was powered up.
func (g *plugs) booted(e *engine, i int32) error {
	e.changed, g.states[i] = true, cluster.PowerUp
	return e.st.setNode(e.wallTime(), e.nodes[i].ID, cluster.NodeReady)
}

// into records how long nodes were off in all, how often they were woken, and which
// jobs waited for that.
func (g *plugs) into(e *engine, r *Result) {
	if e.opt.Power == nil {
		return
	}
	span := float64(e.now - e.sums.first)
	days, all := span/float64(24*time.Hour.Microseconds()), float64(len(e.nodes))*span
	r.NodeHoursOff, r.NodesOffPct, r.WakeUps = figure(e.sums.off/float64(time.Hour.Microseconds())), figure(100*e.sums.off/all), &g.wakes
	if span > 0 {
		r.NodesOff, r.WakeUpsPerDay, r.WakeCallsPerDay = figure(e.sums.off/span), figure(float64(g.wakes)/days), figure(float64(g.calls)/days)
		r.NodesBusyPct = figure(100 * e.sums.nodes / max(1, all-e.sums.off))
	}
	late, sum := 0, 0.0
	for i := range e.tasks {
		t := &e.tasks[i]
		if at, asked := g.asked[t.view.ID]; asked && t.state == done {
			late, sum = late+1, sum+float64(max(0, t.began-at))/1e6
		}
	}
	r.JobsLate, r.MeanLate = &late, figure(sum/float64(max(1, late)))
}
