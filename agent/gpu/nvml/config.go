// Package nvml reports NVIDIA GPUs through the driver's management library,
// which is loaded while the program runs: a node without a driver gets an
// error from New and nothing worse. Builds without cgo have no library to
// load, and their New always answers with an error.
//
// A call into NVML may hang in the kernel when a card fails, so an agent runs
// this provider in a process that it can give up. The library's symbols are
// bound once per process: all Providers of a process must name the same
// library.
package nvml

import "log/slog"

// Config says where the driver is.
type Config struct {
	// LibraryPath is the library to load; "" means libnvidia-ml.so.1 from the
	// loader's search path.
	LibraryPath string
	// Log is told what this driver cannot do; nil discards it.
	Log *slog.Logger
	// SysFS is where sysfs is mounted; "" means /sys.
	SysFS string
}

const defaultLibrary = "libnvidia-ml.so.1"
