//go:build linux && cgo

package nvml

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>

// clocks lists the clocks of a card: those of its memory if memory is 0, otherwise those
// that go with that memory clock. It returns NVML's code, or -1 if the library lacks them.
static int clocks(const char *path, const char *uuid, unsigned memory, unsigned *n, unsigned *to) {
	void *lib = dlopen(path, RTLD_LAZY | RTLD_NOLOAD), *dev = 0;
	if (!lib) {
		return -1;
	}
	int (*handle)(const char *, void **) = (int (*)(const char *, void **))dlsym(lib, "nvmlDeviceGetHandleByUUID");
	int (*mem)(void *, unsigned *, unsigned *) = (int (*)(void *, unsigned *, unsigned *))dlsym(lib, "nvmlDeviceGetSupportedMemoryClocks");
	int (*gpu)(void *, unsigned, unsigned *, unsigned *) = (int (*)(void *, unsigned, unsigned *, unsigned *))dlsym(lib, "nvmlDeviceGetSupportedGraphicsClocks");
	int code = -1;
	if (handle && mem && gpu && (code = handle(uuid, &dev)) == 0) {
		code = memory ? gpu(dev, memory, n, to) : mem(dev, n, to);
	}
	dlclose(lib);
	return code;
}
*/
import "C"

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"unsafe"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/berth-scheduler/berth/agent/gpu"
)

var _ gpu.Tuner = (*Provider)(nil)

// tuner is the part of a Provider that sets power limits and clocks.
type tuner struct{ p *Provider }

// maxClocks is more clocks than any GPU lists.
const maxClocks = 1024

// onCard calls f with the handle of a GPU.
func (t tuner) onCard(uuid string, f func(lib.Device) error) error {
	p := t.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("nvml: provider is closed")
	}
	if !p.has("nvmlDeviceGetHandleByUUID") {
		return fmt.Errorf("the driver finds no card by its UUID; update it")
	}
	d, ret := p.nv.DeviceGetHandleByUUID(uuid)
	if ret == lib.ERROR_NOT_FOUND || ret == lib.ERROR_INVALID_ARGUMENT {
		return fmt.Errorf("%w: %s", gpu.ErrUnknownCard, uuid)
	}
	if err := check("nvmlDeviceGetHandleByUUID", ret); err != nil {
		return err
	}
	return f(d)
}

// Tuning implements gpu.Tuner. What the driver does not report is left 0.
func (t tuner) Tuning(_ context.Context, uuid string) (got gpu.Tuning, err error) {
	err = t.onCard(uuid, func(d lib.Device) error {
		for _, q := range []struct {
			call string
			read func() (uint32, lib.Return)
			to   *int64
		}{
			{"nvmlDeviceGetPowerManagementLimit", d.GetPowerManagementLimit, &got.LimitMilliW},
			{"nvmlDeviceGetPowerManagementDefaultLimit", d.GetPowerManagementDefaultLimit, &got.DefaultMilliW},
		} {
			if !t.p.has(q.call) {
				continue
			}
			if mw, ret := q.read(); ret == lib.SUCCESS {
				*q.to = int64(mw)
			}
		}
		if t.p.has("nvmlDeviceGetPowerManagementLimitConstraints") {
			if least, most, ret := d.GetPowerManagementLimitConstraints(); ret == lib.SUCCESS {
				got.MinMilliW, got.MaxMilliW = int64(least), int64(most)
			}
		}
		got.ClocksMHz = t.clocks(uuid)
		return nil
	})
	return got, err
}

// clocks lists the clocks that go with the fastest memory clock. It calls the library
// directly: its Go bindings have room for only one clock.
func (t tuner) clocks(uuid string) []int64 {
	path := cmp.Or(t.p.cfg.LibraryPath, defaultLibrary)
	cPath, cUUID := append([]byte(path), 0), append([]byte(uuid), 0)
	read := func(memory C.uint) []C.uint {
		n, to := C.uint(maxClocks), make([]C.uint, maxClocks)
		code := C.clocks((*C.char)(unsafe.Pointer(&cPath[0])), (*C.char)(unsafe.Pointer(&cUUID[0])), memory, &n, &to[0])
		if lib.Return(code) != lib.SUCCESS || n > maxClocks {
			return nil
		}
		return to[:n]
	}
	memory := read(0)
	if len(memory) == 0 {
		return nil
	}
	var out []int64
	for _, mhz := range read(slices.Max(memory)) {
		out = append(out, int64(mhz))
	}
	return out
}

// SetPowerLimit implements gpu.Tuner. Drivers require root.
func (t tuner) SetPowerLimit(_ context.Context, uuid string, milliW int64) error {
	const call = "nvmlDeviceSetPowerManagementLimit"
	return t.onCard(uuid, func(d lib.Device) error {
		if !t.p.has(call) {
			return check(call, lib.ERROR_NOT_SUPPORTED)
		}
		return check(call, d.SetPowerManagementLimit(uint32(milliW)))
	})
}

// LockClock implements gpu.Tuner, for GPUs since Volta. Drivers require root.
func (t tuner) LockClock(_ context.Context, uuid string, mhz int64) error {
	call, change := "nvmlDeviceSetGpuLockedClocks", func(d lib.Device) lib.Return { return d.SetGpuLockedClocks(uint32(mhz), uint32(mhz)) }
	if mhz == 0 {
		call, change = "nvmlDeviceResetGpuLockedClocks", lib.Device.ResetGpuLockedClocks
	}
	return t.onCard(uuid, func(d lib.Device) error {
		if !t.p.has(call) {
			return check(call, lib.ERROR_NOT_SUPPORTED)
		}
		return check(call, change(d))
	})
}
