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
func (p *Provider) health(d lib.Device) (gpu.Health, error) {
	h := gpu.Health{
		RemappedCorrectable: gpu.Unknown, RemappedUncorrectable: gpu.Unknown, RetiredPages: gpu.Unknown,
		ECCCorrected: gpu.Unknown, ECCUncorrected: gpu.Unknown, ECCUncorrectedTotal: gpu.Unknown,
		TemperatureC: gpu.Unknown, ThrottleReasons: gpu.Unknown, NVLinksDown: gpu.Unknown,
	}
	var ret lib.Return
	if h.UUID, ret = d.GetUUID(); ret != lib.SUCCESS {
		return h, check("nvmlDeviceGetUUID", ret)
	}
	var lost error
	// good reports whether a call that may be missing returned a value.
	good := func(call string, ret lib.Return) bool {
		if ret == lib.ERROR_GPU_IS_LOST && lost == nil {
			lost = check(call, ret)
		}
		return ret == lib.SUCCESS
	}
	if p.has("nvmlDeviceGetRemappedRows") {
		corr, unc, pending, failed, ret := d.GetRemappedRows()
		if good("nvmlDeviceGetRemappedRows", ret) {
			h.RemappedCorrectable, h.RemappedUncorrectable = int64(corr), int64(unc)
			h.RemapPending, h.RemapFailed = pending, failed
		}
	}
	p.retired(d, &h, good)
	if p.has("nvmlDeviceGetTotalEccErrors") {
		for _, c := range []struct {
			to   *int64
			kind lib.MemoryErrorType
			span lib.EccCounterType
		}{
			{&h.ECCCorrected, lib.MEMORY_ERROR_TYPE_CORRECTED, lib.VOLATILE_ECC},
			{&h.ECCUncorrected, lib.MEMORY_ERROR_TYPE_UNCORRECTED, lib.VOLATILE_ECC},
			{&h.ECCUncorrectedTotal, lib.MEMORY_ERROR_TYPE_UNCORRECTED, lib.AGGREGATE_ECC},
		} {
			if n, ret := d.GetTotalEccErrors(c.kind, c.span); good("nvmlDeviceGetTotalEccErrors", ret) {
				*c.to = int64(n)
			}
		}
	}
	if p.has("nvmlDeviceGetTemperature") {
		if t, ret := d.GetTemperature(lib.TEMPERATURE_GPU); good("nvmlDeviceGetTemperature", ret) {
			h.TemperatureC = int64(t)
		}
	}
	if p.has("nvmlDeviceGetCurrentClocksThrottleReasons") {
		if r, ret := d.GetCurrentClocksThrottleReasons(); good("nvmlDeviceGetCurrentClocksThrottleReasons", ret) {
			h.ThrottleReasons = int64(r)
		}
	}
	h.NVLinksDown = p.linksDown(d)
	return h, lost
}

// retired counts the retired pages of GPUs without row remapping.
func (p *Provider) retired(d lib.Device, h *gpu.Health, good func(string, lib.Return) bool) {
	if p.has("nvmlDeviceGetRetiredPages") {
		for _, cause := range []lib.PageRetirementCause{
			lib.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS, lib.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
		} {
			if pages, ret := d.GetRetiredPages(cause); good("nvmlDeviceGetRetiredPages", ret) {
				h.RetiredPages = max(0, h.RetiredPages) + int64(len(pages))
			}
		}
	}
	if p.has("nvmlDeviceGetRetiredPagesPendingStatus") {
		if on, ret := d.GetRetiredPagesPendingStatus(); good("nvmlDeviceGetRetiredPagesPendingStatus", ret) {
			h.RetirePending = on == lib.FEATURE_ENABLED
		}
	}
}

// linksDown counts the GPU's links that are not up.
func (p *Provider) linksDown(d lib.Device) int64 {
	if !p.has("nvmlDeviceGetNvLinkState") {
		return gpu.Unknown
	}
	have, down := false, int64(0)
	for i := range lib.NVLINK_MAX_LINKS {
		on, ret := d.GetNvLinkState(i)
		if ret == lib.ERROR_NOT_SUPPORTED {
			break
		}
		if ret == lib.SUCCESS {
			have = true
			if on != lib.FEATURE_ENABLED {
				down++
			}
		}
	}
	if !have {
		return gpu.Unknown
	}
	return down
}
