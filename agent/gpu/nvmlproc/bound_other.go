//go:build !linux

package nvmlproc

import "syscall"

// bound relies on the end of its input to end a child.
func bound() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
