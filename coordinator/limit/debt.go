package limit

import "time"

// debt is what a user took of something that is repaid with time. It is stored as
// the time at which all of it is paid.
type debt struct{ paid time.Time }

// add takes what is repaid in span.
func (d *debt) add(now time.Time, span time.Duration) {
	if d.paid.Before(now) {
		d.paid = now
	}
	d.paid = d.paid.Add(span)
}

// sub takes back what was added before.
func (d *debt) sub(span time.Duration) { d.paid = d.paid.Add(-span) }

// wait returns how long until no more than burst is owed, 0 if that is so now.
func (d *debt) wait(now time.Time, burst time.Duration) time.Duration {
	if d.none(now) {
		return 0 // also before anything was taken, which is too long ago for a duration
	}
	return max(0, d.paid.Sub(now)-burst)
}

// none reports whether everything is paid.
func (d *debt) none(now time.Time) bool { return !d.paid.After(now) }
