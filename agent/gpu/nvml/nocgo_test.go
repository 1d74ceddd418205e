//go:build !linux || !cgo

package nvml_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/nvml"
)

func TestNewWithoutCgo(t *testing.T) {
	t.Parallel()
	_, err := nvml.New(nvml.Config{})
	if !errors.Is(err, gpu.ErrNoDriver) || !strings.Contains(err.Error(), "without cgo") {
		t.Errorf("got %v", err)
	}
}
