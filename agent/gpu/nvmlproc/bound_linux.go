package nvmlproc

import "syscall"

// bound makes a child die with the thread that starts it. In a process group of its own it
// does not get the signals of our terminal.
func bound() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
