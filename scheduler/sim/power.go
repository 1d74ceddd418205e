package sim

import (
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/power"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// powerEvery is how often it is decided who is powered down or up.
const powerEvery = time.Minute

// Power is how idle nodes are powered down and up again, as the leader of a cluster does.
type Power struct {
	power.Rule
	// Boot is how long a node takes from off to ready.
	Boot time.Duration
}

// plugs is which nodes are off.
type plugs struct {
	states []cluster.PowerState
	idle   power.Idle
	down   power.Paced
	up     power.Paced
	at     int64 // no look is made before
	tick   int64 // when one is made, whatever happens
	off    int   // nodes that are off, booting ones not
	wakes  int
}

// save powers nodes down and up at this moment, if it is time.
func (g *plugs) save(e *engine) error {
	p, now := e.opt.Power, e.wallTime()
	if p == nil || g.at > e.now {
		return nil
	}
	if g.states == nil {
		g.states = make([]cluster.PowerState, len(e.nodes))
	}
	snap := e.full()
	snap.Nodes = slices.Clone(snap.Nodes)
	for i, n := range snap.Nodes {
		if s := g.states[e.nodeAt[n.ID]]; s != cluster.PowerUp {
			off := *n
			off.Power.State = s
			snap.Nodes[i] = &off
		}
	}
	need := site.Needs{}
	if len(snap.Waiting) > 0 && power.Concerns(snap) {
		need = site.NeededBy(snap, func(view *dispatch.Snapshot) dispatch.Plan { return e.opt.Planner.Plan(view) })
	}
	for _, id := range power.Up(snap, &p.Rule, need.Wake, g.up.Room(p.AtOnce, now)) {
		i := e.nodeAt[id]
		g.up.Did(now)
		g.wakes++
		g.off--
		g.states[i] = cluster.PoweringUp
		e.events.push(event{at: e.now + p.Boot.Microseconds(), id: i, k: evPowerUp})
	}
	g.idle.Look(snap, &p.Rule, need.Used)
	for _, id := range g.idle.Down(snap, &p.Rule, g.down.Room(p.AtOnce, now)) {
		g.down.Did(now)
		g.off++
		g.states[e.nodeAt[id]] = cluster.PoweredDown
		if err := e.st.setNode(now, id, cluster.NodeUnreachable); err != nil {
			return err
		}
	}
	g.at = e.now + powerEvery.Microseconds()
	g.tick = g.at
	if e.st.waiting() == 0 && g.down.Room(p.AtOnce, now) > 0 {
		next := g.idle.Next(&p.Rule, now)
		if next == 0 {
			return nil // nothing comes of time alone
		}
		g.tick = max(g.at, int64(next-epoch))
	}
	e.events.push(event{at: g.tick, k: evPower})
	return nil
}

// booted has a node that was powered up register.
func (g *plugs) booted(e *engine, i int32) error {
	e.changed, g.states[i] = true, cluster.PowerUp
	return e.st.setNode(e.wallTime(), e.nodes[i].ID, cluster.NodeReady)
}

// into says how long nodes were off together.
func (g *plugs) into(e *engine, r *Result) {
	if e.opt.Power == nil {
		return
	}
	hours, all := e.sums.off/float64(time.Hour.Microseconds()), float64(len(e.nodes))*float64(e.now-e.sums.first)
	r.NodeHoursOff, r.NodesOffPct, r.WakeUps = figure(hours), figure(100*e.sums.off/all), &g.wakes
}
