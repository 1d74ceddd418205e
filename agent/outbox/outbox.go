package outbox

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Outbox holds the newest report of each attempt until it is acknowledged. A session takes what
// it has not sent yet; a new session starts over.
type Outbox struct {
	mu     sync.Mutex
	latest map[cluster.AttemptID]*nodev1.Report
	unsent []cluster.AttemptID
	ready  chan struct{} // holds one token while unsent is not empty
}

// New returns an empty Outbox.
func New() *Outbox {
	return &Outbox{latest: map[cluster.AttemptID]*nodev1.Report{}, ready: make(chan struct{}, 1)}
}

// Put replaces the report of an attempt: states only increase, so the newest report says
// everything.
func (o *Outbox) Put(r *nodev1.Report) {
	AsText(r)
	o.mu.Lock()
	id := conv.AttemptOf(r)
	if old := o.latest[id]; old != nil && old.State > r.State {
		o.mu.Unlock()
		return
	}
	o.latest[id] = r
	o.unsent = append(o.unsent, id)
	o.mu.Unlock()
	o.wake()
}

// AsText converts the texts of r to UTF-8: they may quote paths, which are bytes, and could
// otherwise neither be stored nor sent.
func AsText(r *nodev1.Report) {
	for _, s := range []*string{&r.Detail, &r.Drain} {
		if !utf8.ValidString(*s) { // otherwise it may be read concurrently
			*s = strings.ToValidUTF8(*s, "?")
		}
	}
}

func (o *Outbox) wake() { wait.Poke(o.ready) }

// Ready returns a channel that holds a token while there may be something to send.
func (o *Outbox) Ready() <-chan struct{} { return o.ready }

// Rewind makes everything unsent again, for a new session.
func (o *Outbox) Rewind() {
	o.mu.Lock()
	o.unsent = o.unsent[:0]
	for id := range o.latest {
		o.unsent = append(o.unsent, id)
	}
	o.mu.Unlock()
	o.wake()
}

// Take returns up to n reports to send now.
func (o *Outbox) Take(n int) []*nodev1.Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []*nodev1.Report
	for len(o.unsent) > 0 && len(out) < n {
		if r := o.latest[o.unsent[0]]; r != nil {
			out = append(out, r)
		}
		o.unsent = o.unsent[1:]
	}
	if len(o.unsent) > 0 {
		o.wake()
	}
	return out
}

// Ack drops a committed report, unless a newer one has replaced it.
func (o *Outbox) Ack(id cluster.AttemptID, s nodev1.AttemptState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.latest[id]; r != nil && r.State <= s {
		delete(o.latest, id)
	}
}

// Has reports whether an attempt's report waits to be acknowledged.
func (o *Outbox) Has(id cluster.AttemptID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.latest[id] != nil
}

// Drop forgets an attempt and its report.
func (o *Outbox) Drop(id cluster.AttemptID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.latest, id)
}
