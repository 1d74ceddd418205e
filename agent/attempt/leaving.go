package attempt

import "time"

// Leaving is how far an attempt that ended is with giving its cards back.
//
//	ended ─▶ (COMPLETING, with its exit) ─▶ back for Quiet ─▶ its end is reported
//	                    └─ not back Within ─▶ cards quarantined ─▶ its end is reported
//	                                              └─ back ─▶ cards open again
//
// The state machine frees shares with the report of the end. So that report
// waits until either the memory is back, or the leader knows that the card is
// closed: hello goes before reports, and both are committed in order.
type Leaving struct {
	Since    time.Time     // zero before it began
	Reported bool          // how it ended, with its cards quarantined
	Wait     time.Duration // until the next look
	quiet    time.Time     // since when nothing of it is on its cards; zero while something is
	said     bool          // that it is completing
}

const (
	returnFirst = 5 * time.Millisecond // the first look again, doubling
	returnEvery = 250 * time.Millisecond
	// sayAfter is how long cards may take to be free without a word of it.
	sayAfter = 100 * time.Millisecond
)

// Leave is what is to be done about the cards of an attempt that ended.
type Leave uint8

// What may be done.
const (
	Await   Leave = iota // look again after Wait
	Say                  // that it is completing, then look again
	Overdue              // quarantine the cards, report the end, then look again
	Back                 // nothing of it is left
)

// Cards is what is seen of the cards of an attempt that ended.
type Cards struct {
	Now, Ended time.Time
	Held       string // what of it is still on them, "" for nothing
	Released   bool   // the leader needs nothing more of it
	// Quiet is how long nothing may be on them, Within after how long they are
	// quarantined.
	Quiet, Within time.Duration
}

// Next decides what is to be done, and how far the attempt is then.
func (l Leaving) Next(c Cards) (Leave, Leaving) {
	l.Wait = min(max(2*l.Wait, returnFirst), returnEvery)
	if c.Held != "" {
		l.quiet = time.Time{}
	} else if l.quiet.IsZero() {
		l.quiet = c.Now
	}
	if c.Held == "" && c.Now.Sub(l.quiet) >= c.Quiet {
		return Back, l
	}
	do, late := Await, c.Now.Sub(l.Since) >= c.Within || c.Now.Sub(c.Ended) >= 2*c.Within
	switch {
	case c.Held != "" && (late || c.Released):
		do = Overdue
	case !l.said && !c.Released && !l.Reported && c.Now.Sub(l.Since) >= sayAfter:
		do, l.said = Say, true
	}
	return do, l
}
