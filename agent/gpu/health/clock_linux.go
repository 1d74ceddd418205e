package health

import (
	"time"

	"golang.org/x/sys/unix"
)

// when turns the time of a record of the kernel's log into the wall clock's;
// one that cannot be is now.
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
