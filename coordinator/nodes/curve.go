package nodes

import (
	"math"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// How much of the metrics reported by attempts is remembered: so many points of
// each, of so many attempts of a node, which is 1 MB at most. A curve without new
// points for curveKept makes room for others.
const (
	curvePoints = 256
	curveJobs   = 256
	curveKept   = time.Hour
)

// Point is an attempt's metric at a step.
type Point struct {
	Step  int64
	Value float64
}

// curve is what one attempt reported: every so many-th point, and the newest.
type curve struct {
	points []Point
	newest Point
	every  int // one of so many points is kept
	left   int // how many more come before the next one kept
	at     time.Time
}

// curves are those of the attempts of a node. Their owner holds a lock.
type curves map[cluster.AttemptID]*curve

func (cs curves) add(id cluster.AttemptID, now time.Time, p Point) {
	if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
		return
	}
	c := cs[id]
	if c == nil {
		if len(cs) >= curveJobs && !cs.makeRoom(now) {
			return
		}
		c = &curve{every: 1, newest: Point{Step: -1}}
		cs[id] = c
	}
	c.at = now
	switch {
	case p.Step == c.newest.Step:
		return
	case p.Step < c.newest.Step: // it restarted its count
		*c = curve{every: 1, at: now}
	}
	c.newest = p
	if c.left > 0 {
		c.left--
		return
	}
	if len(c.points) == curvePoints {
		for i := range curvePoints / 2 {
			c.points[i] = c.points[2*i]
		}
		c.points, c.every = c.points[:curvePoints/2], 2*c.every
	}
	c.points, c.left = append(c.points, p), c.every-1
}

// makeRoom forgets curves that no longer grow.
func (cs curves) makeRoom(now time.Time) bool {
	for id, c := range cs {
		if now.Sub(c.at) > curveKept {
			delete(cs, id)
		}
	}
	return len(cs) < curveJobs
}

// of returns what an attempt reported, by rising steps.
func (cs curves) of(id cluster.AttemptID) []Point {
	c := cs[id]
	if c == nil {
		return nil
	}
	out := append([]Point(nil), c.points...)
	if n := len(out); n > 0 && out[n-1] != c.newest {
		out = append(out, c.newest)
	}
	return out
}

// Curve returns what an attempt of a job reported of its metric, by rising steps,
// as far as this coordinator led then: from the first of its nodes that reported
// any.
func (n *Nodes) Curve(job cluster.JobID, a *cluster.Attempt) []Point {
	n.live.mu.Lock()
	defer n.live.mu.Unlock()
	for _, node := range a.NodeIDs() {
		if c := n.live.nodes[node]; c != nil && c.curves[cluster.AttemptID{Job: job, No: a.No}] != nil {
			return c.curves.of(cluster.AttemptID{Job: job, No: a.No})
		}
	}
	return nil
}
