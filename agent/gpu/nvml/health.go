//go:build linux && cgo

package nvml

import (
	"context"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// Health implements gpu.HealthReader.
func (p *Provider) Health(ctx context.Context) ([]gpu.Health, error) {
	var out []gpu.Health
	err := p.each(ctx, func(_ int, d lib.Device) error {
		h, err := p.health(d)
		if err == nil {
			out = append(out, h)
		}
		return err
	})
	return out, err
}

// health reads one GPU; only a lost one is an error. The caller holds p.mu.
func (p *Provider) health(d lib.Device) (h gpu.Health, err error) {
	var ret lib.Return
	if h.UUID, ret = d.GetUUID(); ret != lib.SUCCESS {
		return h, check("nvmlDeviceGetUUID", ret)
	}
	if p.has("nvmlDeviceGetRemappedRows") {
		_, _, pending, failed, ret := d.GetRemappedRows()
		if ret == lib.ERROR_GPU_IS_LOST {
			return h, check("nvmlDeviceGetRemappedRows", ret)
		}
		if ret == lib.SUCCESS {
			h.RemapPending, h.RemapFailed = pending, failed
		}
	}
	// GPUs without row remapping retire pages.
	if p.has("nvmlDeviceGetRetiredPagesPendingStatus") {
		on, ret := d.GetRetiredPagesPendingStatus()
		if ret == lib.ERROR_GPU_IS_LOST {
			return h, check("nvmlDeviceGetRetiredPagesPendingStatus", ret)
		}
		h.RetirePending = ret == lib.SUCCESS && on == lib.FEATURE_ENABLED
	}
	return h, nil
}
