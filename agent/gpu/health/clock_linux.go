package health

import (
	"time"

	"golang.org/x/sys/unix"
)

// when converts the time of a kernel log record to wall-clock time, or returns the current time
// if it cannot.
func when(since time.Duration) time.Time {
	var ts unix.Timespec
	now := time.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return now
	}
	age := time.Duration(ts.Nano()) - since
	if age < 0 || since == 0 {
		return now
	}
	return now.Add(-age)
}
