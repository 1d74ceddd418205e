// Package pty creates pseudo-terminals, as described in pty(7) and ioctl_tty(2).
package pty

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Open creates a terminal of 24 rows and 80 columns that belongs to uid. What is written to
// master is typed into it. Reads of master support deadlines; they end with EIO when nothing
// has the terminal open any more.
func Open(uid uint32) (master, terminal *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a pseudo terminal: %w", err)
	}
	// It is in non-blocking mode, so that the runtime's poller waits for it.
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	tty, err := openTerminal(fd)
	if err == nil {
		terminal = os.NewFile(uintptr(tty), "terminal")
		if os.Getuid() == 0 {
			// Nobody else may write to it.
			err = errors.Join(unix.Fchown(tty, int(uid), -1), unix.Fchmod(tty, 0o600))
		}
		err = errors.Join(err, Resize(terminal, 24, 80))
	}
	if err != nil {
		if terminal != nil {
			terminal.Close()
		}
		master.Close()
		return nil, nil, fmt.Errorf("open a pseudo terminal: %w", err)
	}
	return master, terminal, nil
}

// openTerminal opens the other end through the master: in this mount namespace its name may
// refer to another terminal.
func openTerminal(master int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, fmt.Errorf("unlock: %w", err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return -1, fmt.Errorf("open the other end: %w", errno)
	}
	return int(fd), nil
}

// Resize sets the size of a terminal, through either end; its foreground processes get SIGWINCH
// when it changes.
func Resize(f *os.File, rows, columns uint16) error {
	return control(f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

// control leaves the file in its current mode, unlike Fd.
func control(f *os.File, do func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := c.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}
