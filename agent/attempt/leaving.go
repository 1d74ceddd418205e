package attempt

import "time"

// Leaving is how far an ended attempt is with returning its GPUs.
//
//	ended ─▶ (COMPLETING, with its exit) ─▶ back for Quiet ─▶ its end is reported
//	                    └─ not back Within ─▶ GPUs quarantined ─▶ its end is reported
//	                                              └─ back ─▶ GPUs open again
//
// The state machine frees shares when the end is reported. So that report waits until
// either the memory is back, or the leader knows that the GPU is closed: hello precedes
// reports, and both are committed in order.
type Leaving struct {
	Since    time.Time     // zero before it began
	Reported bool          // its end is reported, with its GPUs quarantined
	Wait     time.Duration // until the next look
	quiet    time.Time     // since when nothing of it is on its GPUs; zero while something is
	said     bool          // reported as completing
}

const (
	returnFirst = 5 * time.Millisecond // time to the second look; it doubles
	returnEvery = 250 * time.Millisecond
	// sayAfter is how long GPUs may take to become free before COMPLETING is reported.
	sayAfter = 100 * time.Millisecond
)

// Leave is what to do about the GPUs of an ended attempt.
type Leave uint8

// The values of Leave.
const (
	Await   Leave = iota // look again after Wait
	Say                  // report COMPLETING, then look again
	Overdue              // quarantine the GPUs, report the end, then look again
	Back                 // nothing of it is left
)

// Cards is the observed state of an ended attempt's GPUs.
type Cards struct {
	Now, Ended time.Time
	Held       string // what of it is still on them, "" for nothing
	Released   bool   // the leader needs nothing more of it
	// Quiet is how long they must be empty, Within after how long they are quarantined.
	Quiet, Within time.Duration
}

// Next decides what to do, and returns the new state of l.
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
