package owner

import "golang.org/x/sys/unix"

// bootTicks returns the present in the unit of start times: hundredths of a second since
// boot, on every architecture (USER_HZ). It is rounded up, as start times are rounded down.
func bootTicks() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 1<<64 - 1 // better no guard than no names
	}
	return uint64(ts.Nano())/1e7 + 1
}
