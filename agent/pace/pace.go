// Package pace decides how often an agent sends heartbeats.
package pace

import (
	"time"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const (
	// Every is the interval between heartbeats of a node at work.
	Every = 2 * time.Second
	// idle is how many times as long it is on a node on which nothing runs.
	idle = 3
	// perLease is how many heartbeats a lease must have room for.
	perLease = 5
)

// Pace drops heartbeats that tell the leader nothing but that the node is alive, as
// often as its lease allows: a leader of many idle nodes has little else to do. The
// zero value drops none until the lease is known.
type Pace struct {
	lease   time.Duration
	dropped int
}

// Granted records the lease that the leader granted.
func (p *Pace) Granted(lease time.Duration) { p.lease = lease }

// Due reports whether to send a heartbeat that would follow the one before after the
// given interval.
func (p *Pace) Due(beat *nodev1.Heartbeat, every time.Duration) bool {
	news := len(beat.Attempts) > 0 || beat.Images != nil
	if news || p.dropped+1 >= idle || p.lease < perLease*idle*every {
		p.dropped = 0
		return true
	}
	p.dropped++
	return false
}
