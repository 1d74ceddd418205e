//go:build linux && cgo

package nvml

import (
	"fmt"
	"slices"
	"strings"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// links returns where the active NVLinks of a GPU lead.
func (p *Provider) links(d lib.Device) []linkEnd {
	if !p.has("nvmlDeviceGetNvLinkState") {
		return nil
	}
	var ends []linkEnd
	for i := range lib.NVLINK_MAX_LINKS {
		switch on, ret := d.GetNvLinkState(i); {
		case ret == lib.ERROR_NOT_SUPPORTED:
			return ends // a GPU without links, or MIG
		case ret != lib.SUCCESS || on != lib.FEATURE_ENABLED:
			continue
		}
		if p.has("nvmlDeviceGetNvLinkRemoteDeviceType") {
			if kind, ret := d.GetNvLinkRemoteDeviceType(i); ret == lib.SUCCESS && kind == lib.NVLINK_DEVICE_TYPE_SWITCH {
				ends = append(ends, linkEnd{toSwitch: true})
				continue
			}
		}
		if !p.hasAny("nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo") {
			continue
		}
		if pci, ret := d.GetNvLinkRemotePciInfo(i); ret == lib.SUCCESS {
			ends = append(ends, linkEnd{pci: busID(pci)})
		}
	}
	return ends
}

func busID(pci lib.PciInfo) string {
	if id := cString(pci.BusId[:]); id != "" {
		return id
	}
	return cString(pci.BusIdLegacy[:])
}

// mig reads how the GPU is partitioned. An instance that cannot be read is an error: a
// layout with a gap would be mistaken for a smaller GPU.
func (p *Provider) mig(d lib.Device) (gpu.Mode, []gpu.Instance, error) {
	var out []gpu.Instance
	mode, err := p.eachInstance(d, func(m lib.Device) error {
		in, err := p.instance(m)
		if err != nil {
			return fmt.Errorf("MIG instance %d: %w", len(out), err)
		}
		out = append(out, in)
		return nil
	})
	if err != nil {
		return mode, nil, err
	}
	slices.SortFunc(out, func(a, b gpu.Instance) int { return strings.Compare(a.UUID, b.UUID) })
	return mode, out, nil
}

// eachInstance calls f with every instance of a GPU in MIG mode.
func (p *Provider) eachInstance(d lib.Device, f func(lib.Device) error) (gpu.Mode, error) {
	if !p.has("nvmlDeviceGetMigMode") {
		return gpu.ModeUnknown, nil
	}
	now, _, ret := d.GetMigMode()
	switch {
	case unsupported(ret):
		return gpu.ModeOff, nil // GPUs older than MIG
	case ret != lib.SUCCESS:
		return gpu.ModeUnknown, check("nvmlDeviceGetMigMode", ret)
	case now != lib.DEVICE_MIG_ENABLE:
		return gpu.ModeOff, nil
	}
	if !p.has("nvmlDeviceGetMaxMigDeviceCount") || !p.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return gpu.ModeOn, nil
	}
	n, ret := d.GetMaxMigDeviceCount()
	if ret != lib.SUCCESS {
		return gpu.ModeOn, check("nvmlDeviceGetMaxMigDeviceCount", ret)
	}
	for i := range n {
		m, ret := d.GetMigDeviceHandleByIndex(i)
		if ret == lib.ERROR_NOT_FOUND || ret == lib.ERROR_INVALID_ARGUMENT {
			continue // an empty slot
		}
		if err := check("nvmlDeviceGetMigDeviceHandleByIndex", ret); err != nil {
			return gpu.ModeOn, err
		}
		if err := f(m); err != nil {
			return gpu.ModeOn, err
		}
	}
	return gpu.ModeOn, nil
}

func (p *Provider) instance(m lib.Device) (gpu.Instance, error) {
	in := gpu.Instance{GI: gpu.Unknown, CI: gpu.Unknown}
	var ret lib.Return
	if in.UUID, ret = m.GetUUID(); ret != lib.SUCCESS {
		return in, check("nvmlDeviceGetUUID", ret)
	}
	mem, err := p.memory(m)
	if err != nil {
		return in, err
	}
	in.MemMiB = mib(mem.Total)
	if p.has("nvmlDeviceGetGpuInstanceId") {
		if id, ret := m.GetGpuInstanceId(); ret == lib.SUCCESS {
			in.GI = id
		}
	}
	if p.has("nvmlDeviceGetComputeInstanceId") {
		if id, ret := m.GetComputeInstanceId(); ret == lib.SUCCESS {
			in.CI = id
		}
	}
	if p.hasAny("nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes") {
		if a, ret := m.GetAttributes(); ret == lib.SUCCESS {
			in.SMs, in.Profile = int(a.MultiprocessorCount), profile(a)
		}
	}
	if name, ret := m.GetName(); ret == lib.SUCCESS {
		if _, after, ok := strings.Cut(name, " MIG "); ok {
			in.Profile = strings.TrimSpace(after)
		}
	}
	return in, nil
}

// profile formats the slices of an instance as nvidia-smi does.
func profile(a lib.DeviceAttributes) string {
	p := fmt.Sprintf("%dg.%dgb", a.GpuInstanceSliceCount, (a.MemorySizeMB+1023)/1024)
	if a.ComputeInstanceSliceCount != a.GpuInstanceSliceCount {
		p = fmt.Sprintf("%dc.%s", a.ComputeInstanceSliceCount, p)
	}
	return p
}
