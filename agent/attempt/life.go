package attempt

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/gpu/caps"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// Cause is why an attempt is ended before it ends by itself.
type Cause uint8

// The causes.
const (
	NoCause   Cause = iota
	Asked           // the attempt is no longer wanted
	TimeLimit       // it reached its time limit
	Room            // to make room, with its state saved
	OverCap         // it holds more GPU memory than its share
	CardGone        // its GPU no longer works
	StoodIdle       // it is a session that was idle too long
	CardFault       // the server through which it shared its GPU ended by a fault
)

// Life is how far an attempt has come, and what must not be forgotten of it: the journal
// has all but what a restarted agent sees by itself. It is a value: what it points to is
// never changed in place.
type Life struct {
	Started time.Time // zero until it runs
	Cause   Cause
	// Saving is when it began to save its state to make room, and Signaled when it was told
	// to; both zero before.
	Saving, Signaled time.Time
	KillAt           time.Time // zero until it got TERM
	Killed           bool
	Limit            time.Duration     // the time limit in the journal
	Breach           *nodev1.MemBreach // it is above its share of a GPU
	Progress         *nodev1.Progress  // what was done for it
}

// Remember returns the life that a record of the journal describes.
func Remember(as *nodev1.Assignment) Life {
	l := Life{Limit: as.GetTimeLimit().AsDuration(), Breach: as.GetBreach(), Progress: as.GetProgress()}
	if l.Breach != nil {
		l.Cause = OverCap
	}
	if p := as.GetPreempt(); p.GetAt() != nil {
		l.Saving = p.At.AsTime()
		if l.Breach == nil {
			l.Cause = Room
		}
		if p.Sent {
			l.Signaled = l.Saving
		}
	}
	return l
}

// Record returns the journal record of an attempt, which Remember reads back.
func (l Life) Record(as *nodev1.Assignment) *nodev1.Assignment {
	as = proto.CloneOf(as)
	if p := as.Preempt; p != nil && !l.Saving.IsZero() {
		p.At, p.Sent = timestamppb.New(l.Saving), !l.Signaled.IsZero()
	}
	as.Breach, as.Progress = l.Breach, nil
	if proto.Size(l.Progress) > 0 {
		as.Progress = l.Progress
	}
	return as
}

// With returns the life with done applied to its progress.
func (l Life) With(done func(p *nodev1.Progress)) Life {
	p := &nodev1.Progress{}
	proto.Merge(p, l.Progress)
	done(p)
	l.Progress = p
	return l
}

// Over returns the life after the watch over GPU memory found b, which may be nil. The
// first finding stays, and becomes urgent when a later one is.
func (l Life) Over(b *caps.Breach) Life {
	switch {
	case b == nil:
	case l.Breach == nil:
		l.Breach = &nodev1.MemBreach{Uuid: b.UUID, HeldMib: b.HeldMiB, CapMib: b.CapMiB, Since: timestamppb.New(b.Since), Urgent: b.Urgent}
	case b.Urgent && !l.Breach.Urgent:
		l = l.breach(func(was *nodev1.MemBreach) { was.Urgent, was.HeldMib = true, max(was.HeldMib, b.HeldMiB) })
	}
	return l
}

func (l Life) breach(change func(b *nodev1.MemBreach)) Life {
	l.Breach = proto.CloneOf(l.Breach)
	change(l.Breach)
	return l
}

// wasOverCap reports whether an attempt that ended at the given instant was ended for its
// memory. An attempt that ended earlier came to its own end.
func (l Life) wasOverCap(ended time.Time) bool {
	return l.Cause == OverCap && l.Breach != nil && (ended.IsZero() || !ended.Before(l.Breach.At.AsTime().Truncate(time.Millisecond)))
}

// madeRoom reports whether an attempt that ended at the given instant was leaving to make
// room. An attempt that ended before it was told came to its own end.
func (l Life) madeRoom(ended time.Time) bool {
	return l.Cause == Room && (ended.IsZero() || !ended.Before(l.Signaled))
}
