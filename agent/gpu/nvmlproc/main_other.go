//go:build !linux

package nvmlproc

import (
	"log/slog"
	"os"
)

// Main is Serve on the descriptors of its own process.
func Main(stdin, stdout, _ *os.File, open func() (Driver, error), log *slog.Logger) error {
	return Serve(stdin, stdout, open, log)
}
