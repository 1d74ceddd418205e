//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// eventWait is how long one wait for events lasts, in milliseconds: Watch
// looks at its context that often.
const eventWait = 5000

// Watch calls emit with each critical Xid and double-bit ECC error until ctx ends or
// waiting fails. It waits in a driver call without holding a lock, so that other calls
// continue even when that one never returns. The error wraps errors.ErrUnsupported when
// this driver reports no events.
func (p *Provider) Watch(ctx context.Context, emit func(gpu.Event)) error {
	for _, sym := range []string{"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceRegisterEvents"} {
		if !p.has(sym) {
			return fmt.Errorf("%w: the driver has no %s", errors.ErrUnsupported, sym)
		}
	}
	if !p.hasAny("nvmlEventSetWait_v2", "nvmlEventSetWait") {
		return fmt.Errorf("%w: the driver has no nvmlEventSetWait", errors.ErrUnsupported)
	}
	set, ret := p.nv.EventSetCreate()
	if unsupported(ret) {
		return fmt.Errorf("%w: nvmlEventSetCreate: %s", errors.ErrUnsupported, text(ret))
	}
	if err := check("nvmlEventSetCreate", ret); err != nil {
		return err
	}
	defer set.Free()
	uuids := map[lib.Device]string{}
	if err := p.register(ctx, set, uuids); len(uuids) == 0 {
		return fmt.Errorf("%w: no card tells events: %w", errors.ErrUnsupported, err)
	}
	for ctx.Err() == nil {
		data, ret := set.Wait(eventWait)
		switch ret {
		case lib.SUCCESS:
			e := event(data)
			if e.UUID = uuids[data.Device]; e.UUID == "" {
				e.UUID, _ = data.Device.GetUUID()
			}
			emit(e)
		case lib.ERROR_TIMEOUT:
		default:
			return check("nvmlEventSetWait", ret)
		}
	}
	return ctx.Err()
}

// register adds every GPU that can report events to set.
func (p *Provider) register(ctx context.Context, set lib.EventSet, uuids map[lib.Device]string) error {
	return p.each(ctx, func(_ int, d lib.Device) error {
		uuid, ret := d.GetUUID()
		if ret != lib.SUCCESS {
			return check("nvmlDeviceGetUUID", ret)
		}
		want := uint64(lib.EventTypeXidCriticalError | lib.EventTypeDoubleBitEccError)
		if p.has("nvmlDeviceGetSupportedEventTypes") {
			can, ret := d.GetSupportedEventTypes()
			if ret != lib.SUCCESS {
				return check("nvmlDeviceGetSupportedEventTypes", ret)
			}
			want &= can
		}
		if want == 0 {
			return nil
		}
		if ret := d.RegisterEvents(want, set); ret != lib.SUCCESS {
			return check("nvmlDeviceRegisterEvents", ret)
		}
		uuids[d] = uuid
		return nil
	})
}

func event(data lib.EventData) gpu.Event {
	e := gpu.Event{At: time.Now()}
	switch data.EventType {
	case lib.EventTypeXidCriticalError:
		e.Kind, e.Xid = gpu.EventXid, int(data.EventData)
		e.Detail = fmt.Sprintf("Xid %d", data.EventData)
	default:
		e.Kind, e.Detail = gpu.EventECC, "double bit ECC error"
	}
	// Without MIG, both ids are all ones.
	if data.GpuInstanceId != 1<<32-1 && data.GpuInstanceId != 0 {
		e.Detail += fmt.Sprintf(" in GPU instance %d", data.GpuInstanceId)
	}
	return e
}
