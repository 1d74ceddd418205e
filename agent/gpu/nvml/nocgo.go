//go:build !linux || !cgo

package nvml

import (
	"context"
	"fmt"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// Provider cannot exist in this build.
type Provider struct{ tuner }

type tuner struct{}

var (
	_ gpu.Provider     = (*Provider)(nil)
	_ gpu.HealthReader = (*Provider)(nil)
	_ gpu.Tuner        = (*Provider)(nil)
)

// New always fails: this build cannot load the library.
func New(Config) (*Provider, error) {
	return nil, fmt.Errorf("%w: this program was built without cgo and cannot load %s; use a build with cgo or configure gpus: none",
		gpu.ErrNoDriver, defaultLibrary)
}

// Inventory implements gpu.Provider.
func (*Provider) Inventory(context.Context) ([]gpu.Card, error) { return nil, gpu.ErrNoDriver }

// Usage implements gpu.Provider.
func (*Provider) Usage(context.Context) ([]gpu.Usage, error) { return nil, gpu.ErrNoDriver }

// Admit implements gpu.Provider.
func (*Provider) Admit(context.Context, gpu.Grant) ([]string, error) { return nil, gpu.ErrNoDriver }

// Retire implements gpu.Provider.
func (*Provider) Retire(context.Context, string) error { return nil }

// Health implements gpu.HealthReader.
func (*Provider) Health(context.Context) ([]gpu.Health, error) { return nil, gpu.ErrNoDriver }

// Tuning implements gpu.Tuner.
func (tuner) Tuning(context.Context, string) (gpu.Tuning, error) {
	return gpu.Tuning{}, gpu.ErrNoDriver
}

// SetPowerLimit implements gpu.Tuner.
func (tuner) SetPowerLimit(context.Context, string, int64) error { return gpu.ErrNoDriver }

// LockClock implements gpu.Tuner.
func (tuner) LockClock(context.Context, string, int64) error { return gpu.ErrNoDriver }

// Watch always fails.
func (*Provider) Watch(context.Context, func(gpu.Event)) error { return gpu.ErrNoDriver }

// Versions returns nothing.
func (*Provider) Versions() (driver, cuda string) { return "", "" }

// Close implements gpu.Provider.
func (*Provider) Close() error { return nil }
