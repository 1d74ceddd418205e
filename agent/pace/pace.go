// Package pace decides how often an agent sends heartbeats.
package pace

import (
	"time"

	"google.golang.org/protobuf/proto"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const (
	// Every is the interval between heartbeats with news.
	Every = 2 * time.Second
	// quiet is how many times as long it is at most without.
	quiet = 4
	// perLease is how many heartbeats a lease must have room for.
	perLease = 5
)

// By how much a GPU's figures must differ from those sent last to be news: part of its
// memory, and thousandths of its time.
const (
	newsPart  = 64
	newsMilli = 200
)

// Pace drops heartbeats without news, as often as the lease allows: a leader of many
// nodes has little else to do. The zero value drops none until the lease is known.
type Pace struct {
	lease   time.Duration
	dropped int
	waiting bool
	sent    *nodev1.Heartbeat
}

// Granted records the lease with which the leader answered.
func (p *Pace) Granted(lease time.Duration) { p.lease, p.waiting = lease, false }

// Due reports whether to send a heartbeat that would follow the one before after the
// given interval. While an answer is missing it always is: the next leader may have to
// be looked for. One that is due is kept, and must not be modified.
func (p *Pace) Due(beat *nodev1.Heartbeat, every time.Duration) bool {
	most := min(quiet, p.lease/(perLease*every))
	if p.waiting || time.Duration(p.dropped+1) >= most || p.sent == nil || news(p.sent, beat) {
		p.dropped, p.waiting, p.sent = 0, true, beat
		return true
	}
	p.dropped++
	return false
}

// news reports whether now says something of which the leader should know soon, other
// than that sums and steps have grown.
func news(was, now *nodev1.Heartbeat) bool {
	if now.Images != nil || len(was.Gpus) != len(now.Gpus) || len(was.Attempts) != len(now.Attempts) {
		return true
	}
	for i, g := range now.Gpus {
		o := was.Gpus[i]
		if g.Uuid != o.Uuid || apart(g.UsedMib, o.UsedMib) > (g.UsedMib+g.FreeMib)/newsPart || apart(g.UtilMilli, o.UtilMilli) >= newsMilli {
			return true
		}
	}
	for i, a := range now.Attempts {
		if o := was.Attempts[i]; a.Job != o.Job || a.Attempt != o.Attempt || stepNews(o.Steps, a.Steps) || !proto.Equal(a.Probe, o.Probe) || !proto.Equal(a.Pull, o.Pull) {
			return true
		}
	}
	return false
}

// stepNews reports whether the progress of an attempt is news: it began, ended or was
// measured.
func stepNews(was, now *nodev1.Steps) bool {
	return (was == nil) != (now == nil) || now.GetMetric() != was.GetMetric() || now.GetTotal() != was.GetTotal() ||
		now != nil && now.Step != was.Step && now.Step == now.Total
}

func apart(a, b int64) int64 { return max(a-b, b-a) }
