// Package nvml reports NVIDIA GPUs through the driver's management library, which is loaded
// at run time: on a node without a driver, New returns an error and nothing worse happens.
// Builds without cgo cannot load the library, and their New always returns an error.
//
// A call into NVML may hang in the kernel when a GPU fails, so an agent runs this provider
// in a process that it can abandon. The library's symbols are bound once per process: all
// Providers of a process must name the same library.
package nvml

import "log/slog"

// Config says where the driver is.
type Config struct {
	// LibraryPath is the library to load; "" means libnvidia-ml.so.1 from the
	// loader's search path.
	LibraryPath string
	// Log receives what this driver cannot do; nil discards it.
	Log *slog.Logger
	// SysFS is where sysfs is mounted; "" means /sys.
	SysFS string
}

const defaultLibrary = "libnvidia-ml.so.1"
