//go:build !linux

package nvmlproc

import (
	"log/slog"
	"os"
)

// Main is Serve on the descriptors of a process of its own.
func Main(stdin, stdout, _ *os.File, open func() (Driver, error), log *slog.Logger) error {
	return Serve(stdin, stdout, open, log)
}
