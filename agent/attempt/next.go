package attempt

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// LookEvery is the longest time between looks at an attempt: events are only a hint.
const LookEvery = 10 * time.Second

// Act is what to do about a running attempt.
type Act uint8

// The acts. The journal comes first: acts that only record come before those that send a
// signal, which are recorded once it was sent. A restarted agent continues with what is
// left, and does not disturb a job that is saving with a second signal.
const (
	LookAgain Act = iota // do nothing until Wait is over
	NoteLimit            // record that its time limit was changed
	NoteRoom             // record since when it has to make room
	NoteOver             // record that it is ended for its memory
	Save                 // signal: save your state; then record that it was sent
	Tell                 // signal: you hold too much; then record that it was sent
	Warn                 // signal: your time is nearly over; then record that it was sent
	Term                 // signal: end, within Grace
	Kill                 // signal: KILL, and look again after Wait
	Stuck                // KILL does not end it: report that, and send KILL again after Wait
)

// Do is an act, and the life after it.
type Do struct {
	Act    Act
	Then   Life
	Signal string        // to send, without SIG; "" for none
	Record bool          // the journal must know: before the act, or once the signal was sent
	Grace  time.Duration // allowed for Save, and from Term to Kill
	Wait   time.Duration // when to look again; zero for immediately
}

// Seen is what is known of an attempt when it is looked at.
type Seen struct {
	Now      time.Time
	As       *nodev1.Assignment // nil for an unknown attempt
	Released bool               // the leader needs nothing more of it
	Cards    Cause              // why it must end because of its GPUs
	Idle     bool               // it is a session that has been idle for its limit
	IdleWait time.Duration      // otherwise when to check that again
	Grace    time.Duration      // from Term to Kill when the assignment has none
	// OverGrace is the time from Tell to Term, and Unkillable from Kill to Stuck.
	OverGrace, Unkillable time.Duration
}

// Next decides what to do about a running attempt. If it only makes room, it may first save
// its state, then gets TERM, and KILL after the grace.
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

// mustEnd returns why the attempt must end, if it must, and otherwise when to ask again.
// The time limit and a request to end take precedence over making room.
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

// noteLimit records a time limit that was changed while the attempt runs before it takes
// effect, so that a restarted agent keeps to it. When the limit is extended, the warning
// before its end is sent again.
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

// warn sends an attempt the signal that precedes its time limit, once. An agent killed
// between the signal and its record sends a second one: saving twice costs a job less than
// never saving. If the agent was away at the time, the signal comes late.
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

// over tells an attempt above its share that it will be ended. In an urgent case it ends at
// once, without being told.
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

// save tells an attempt that makes room to save its state. An attempt without a hook that
// is requeued gets TERM and the usual grace, and then KILL.
func (l Life) save(s *Seen) Do {
	hook, grace := s.As.Preempt.Signal, s.As.Preempt.Grace.AsDuration()
	if !slices.Contains([]string{"USR1", "USR2", "HUP", "INT"}, hook) {
		hook = "TERM" // no hook, or one that only a newer coordinator knows
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

// kill ends an attempt whose grace is over. There is no grace if it had TERM in order to
// save its state, or if the GPU that it overfills has no room left for its neighbours.
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
