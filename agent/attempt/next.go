package attempt

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// LookEvery is how long an attempt is left alone at most: events are only a hint.
const LookEvery = 10 * time.Second

// Act is what is to be done about an attempt that runs.
type Act uint8

// The acts. First the journal has it, then it is done: the acts that only write it
// down come before those that send a signal, and it knows of the latter when they
// were sent. An agent that starts again goes on with what is left, and disturbs
// nobody who is saving with a second signal.
const (
	LookAgain Act = iota // nothing before Wait is over
	NoteLimit            // write that its time limit was changed
	NoteRoom             // write since when it has to make room
	NoteOver             // write that it is ended for its memory
	Save                 // signal: save your state; then write that it was sent
	Tell                 // signal: you hold too much; then write that it was sent
	Warn                 // signal: your time is nearly over; then write that it was sent
	Term                 // signal: end, within Grace
	Kill                 // signal: KILL, and look again after Wait
	Stuck                // it does not end by KILL: say so, and send it again after Wait
)

// Do is an act, and the life after it.
type Do struct {
	Act    Act
	Then   Life
	Signal string        // to send, without SIG; "" for none
	Record bool          // the journal has to know: first, or once the signal was sent
	Grace  time.Duration // what is given to Save, and from Term to Kill
	Wait   time.Duration // when to look again; zero for at once
}

// Seen is what is known of an attempt at a look.
type Seen struct {
	Now      time.Time
	As       *nodev1.Assignment // nil for one that nobody knows
	Released bool               // the leader needs nothing more of it
	Cards    Cause              // for which it must end, of those that cards have
	Idle     bool               // it is a session that stood idle for its limit
	IdleWait time.Duration      // else when to ask that again
	Grace    time.Duration      // from Term to Kill when the assignment has none
	// OverGrace is the time from Tell to Term, and Unkillable from Kill to Stuck.
	OverGrace, Unkillable time.Duration
}

// Next decides what is to be done about an attempt that runs. When it only makes
// room it may first save its state, then comes TERM, and after the grace KILL.
func (l Life) Next(s *Seen) Do {
	if !l.KillAt.IsZero() {
		return l.kill(s)
	}
	if do, changed := l.noteLimit(s); changed {
		return do
	}
	cause, wait := l.mustEnd(s)
	var do Do
	switch cause {
	case NoCause:
		return l.warn(s, wait)
	case OverCap:
		do = l.over(s)
	case Room:
		do = l.save(s)
	default:
		do = Do{Act: Term}
	}
	switch do.Act {
	case LookAgain:
		do.Then, do.Wait = l, min(do.Wait, wait)
	case Term:
		do.Signal, do.Then, do.Grace = "TERM", l, s.Grace
		do.Then.Cause = cause
		if g := s.As.GetGrace(); g != nil {
			do.Grace = g.AsDuration()
		}
	}
	return do
}

// mustEnd is why the attempt must end, if it must, and else when to ask again. The
// time limit and a request to end it come before making room.
func (l Life) mustEnd(s *Seen) (cause Cause, wait time.Duration) {
	if s.As == nil || s.Released || s.As.Stop {
		return Asked, LookEvery
	}
	wait = LookEvery
	if limit := s.As.GetTimeLimit().AsDuration(); limit > 0 {
		left := limit - s.Now.Sub(l.Started)
		if left <= 0 {
			return TimeLimit, wait
		}
		wait = min(wait, left)
	}
	switch {
	case s.Cards != NoCause:
		return s.Cards, wait
	case l.Breach != nil:
		return OverCap, wait
	case s.Idle:
		return StoodIdle, wait
	case s.As.Preempt != nil:
		return Room, wait
	}
	return NoCause, min(wait, s.IdleWait)
}

// noteLimit has a time limit that was changed while the attempt runs written down
// before anything is done by it: an agent that starts again keeps to it. When
// there is more time again, the warning before its end comes again, too.
func (l Life) noteLimit(s *Seen) (do Do, changed bool) {
	limit := s.As.GetTimeLimit().AsDuration()
	if s.As == nil || s.Released || limit == l.Limit {
		return Do{}, false
	}
	do = Do{Act: NoteLimit, Record: true, Then: l}
	if limit == 0 || limit-s.As.GetWarning().GetBefore().AsDuration() > s.Now.Sub(l.Started) {
		do.Then = l.With(func(p *nodev1.Progress) { p.Warned = false })
	}
	do.Then.Limit = limit
	return do, true
}

// warn sends an attempt the signal that comes before its time limit, once. An
// agent that is killed between the signal and its record sends a second one: that
// a job saves its state twice costs less than that it never does. One that an agent
// was away for comes late.
func (l Life) warn(s *Seen, wait time.Duration) Do {
	w, limit := s.As.GetWarning(), s.As.GetTimeLimit().AsDuration()
	if w == nil || limit <= 0 || l.Progress.GetWarned() || l.Cause != NoCause {
		return Do{Then: l, Wait: wait}
	}
	if left := limit - w.Before.AsDuration() - s.Now.Sub(l.Started); left > 0 {
		return Do{Then: l, Wait: min(wait, left)}
	}
	return Do{Act: Warn, Record: true, Then: l.With(func(p *nodev1.Progress) { p.Warned = true }), Signal: w.Signal}
}

// over tells an attempt above its share that it ends. An urgent one is not told: it
// ends at once.
func (l Life) over(s *Seen) Do {
	switch {
	case l.Breach.At == nil:
		then := l.breach(func(b *nodev1.MemBreach) { b.At = timestamppb.New(s.Now) })
		then.Cause = OverCap
		return Do{Act: NoteOver, Record: true, Then: then}
	case l.Breach.Urgent:
	case !l.Breach.Sent:
		return Do{Act: Tell, Record: true, Then: l.breach(func(b *nodev1.MemBreach) { b.Sent = true }), Signal: "USR1"}
	default:
		if left := s.OverGrace - s.Now.Sub(l.Breach.At.AsTime()); left > 0 {
			return Do{Wait: left}
		}
	}
	return Do{Act: Term}
}

// save tells an attempt that makes room to save its state. One without a hook,
// which is requeued, gets TERM and what an ending attempt has, and then KILL.
func (l Life) save(s *Seen) Do {
	hook, grace := s.As.Preempt.Signal, s.As.Preempt.Grace.AsDuration()
	if !slices.Contains([]string{"USR1", "USR2", "HUP", "INT"}, hook) {
		hook = "TERM" // none, or one that only a newer coordinator knows
	}
	saves := hook != "TERM" || grace > 0
	if !saves {
		grace = s.Grace
	}
	then := l
	switch left := grace - s.Now.Sub(l.Saving); {
	case l.Saving.IsZero():
		then.Saving = s.Now
		return Do{Act: NoteRoom, Record: true, Then: then}
	case l.Signaled.IsZero():
		then.Signaled, then.Cause = s.Now, Room
		return Do{Act: Save, Record: true, Then: then, Signal: hook, Grace: grace}
	case left > 0:
		return Do{Wait: left}
	case !saves:
		return l.kill(s)
	}
	return Do{Act: Term}
}

// kill ends an attempt whose grace is over. It has none when it had its TERM to save
// its state, nor when the card that it overfills has no room left for its neighbours.
func (l Life) kill(s *Seen) Do {
	urgent := l.Breach != nil && l.Breach.Urgent
	if l.KillAt.IsZero() || urgent && s.Now.Before(l.KillAt) {
		l.KillAt = s.Now
	}
	if left := l.KillAt.Sub(s.Now); left > 0 {
		return Do{Then: l, Wait: min(LookEvery, left)}
	}
	since, killed := s.Now.Sub(l.KillAt), l.Killed
	l.Killed = true
	switch {
	case !killed:
		return Do{Act: Kill, Signal: "KILL", Then: l, Wait: time.Second}
	case since < s.Unkillable:
		return Do{Act: Kill, Signal: "KILL", Then: l, Wait: min(LookEvery, s.Unkillable-since)}
	}
	return Do{Act: Stuck, Signal: "KILL", Then: l, Wait: 6 * LookEvery}
}
