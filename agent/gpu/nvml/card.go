//go:build linux && cgo

package nvml

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// Inventory implements gpu.Provider. A second pass over all GPUs finds out which of them
// NVLink connects.
func (p *Provider) Inventory(ctx context.Context) ([]gpu.Card, error) {
	var cards []gpu.Card
	var ends [][]linkEnd
	err := p.each(ctx, func(i int, d lib.Device) error {
		c, err := p.card(i, d)
		if err == nil {
			cards, ends = append(cards, c), append(ends, p.links(d))
		}
		return err
	})
	group(cards, ends)
	return cards, err
}

// card reads what does not change. UUID, name and memory are required; the rest is left
// unknown where the driver does not report it.
func (p *Provider) card(i int, d lib.Device) (gpu.Card, error) {
	c := gpu.Card{Index: i, NUMA: gpu.Unknown, Driver: p.driver, CUDA: p.cuda}
	var ret lib.Return
	if c.UUID, ret = d.GetUUID(); ret != lib.SUCCESS {
		return c, check("nvmlDeviceGetUUID", ret)
	}
	if c.Name, ret = d.GetName(); ret != lib.SUCCESS {
		return c, check("nvmlDeviceGetName", ret)
	}
	c.Type = gpu.NormalizeType(c.Name)
	mem, err := p.memory(d)
	if err != nil {
		return c, err
	}
	c.MemMiB, c.ReservedMiB = mib(mem.Total), mib(mem.Reserved)
	if p.hasAny("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo") {
		if pci, ret := d.GetPciInfo(); ret == lib.SUCCESS {
			c.PCI = cString(pci.BusId[:])
			if c.PCI == "" {
				c.PCI = cString(pci.BusIdLegacy[:])
			}
			c.NUMA = p.numa(c.PCI)
		}
	}
	if p.has("nvmlDeviceGetCudaComputeCapability") {
		if major, minor, ret := d.GetCudaComputeCapability(); ret == lib.SUCCESS {
			c.ComputeMajor, c.ComputeMinor = major, minor
		}
	}
	if p.has("nvmlDeviceGetEnforcedPowerLimit") {
		if mw, ret := d.GetEnforcedPowerLimit(); ret == lib.SUCCESS {
			c.PowerLimitW = int(mw / 1000)
		}
	}
	if p.has("nvmlDeviceGetPersistenceMode") {
		if on, ret := d.GetPersistenceMode(); ret == lib.SUCCESS {
			c.Persistence = mode(on == lib.FEATURE_ENABLED)
		}
	}
	if c.MIG, c.Instances, err = p.mig(d); c.MIG == gpu.ModeOn {
		c.Profiles = p.place(d, c.Instances)
	}
	return c, err
}

func mode(on bool) gpu.Mode {
	if on {
		return gpu.ModeOn
	}
	return gpu.ModeOff
}

// cudaVersion returns the newest CUDA version that the driver supports, or "".
func (p *Provider) cudaVersion() string {
	v, ret := p.nv.SystemGetCudaDriverVersion()
	if ret != lib.SUCCESS || v <= 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
}

// memory prefers the second version of the call: only that one separates the driver's
// reserve from what processes use.
func (p *Provider) memory(d lib.Device) (lib.Memory_v2, error) {
	if p.has("nvmlDeviceGetMemoryInfo_v2") {
		m, ret := d.GetMemoryInfo_v2()
		if ret == lib.SUCCESS {
			return m, nil
		}
		if !unsupported(ret) {
			return m, check("nvmlDeviceGetMemoryInfo_v2", ret)
		}
	}
	m, ret := d.GetMemoryInfo()
	return lib.Memory_v2{Total: m.Total, Free: m.Free, Used: m.Used}, check("nvmlDeviceGetMemoryInfo", ret)
}

// numa reads the host's NUMA node of a GPU from sysfs, where the address has a shorter
// domain and is in lower case.
func (p *Provider) numa(pci string) int {
	domain, rest, ok := strings.Cut(pci, ":")
	if !ok || len(domain) < 4 {
		return gpu.Unknown
	}
	root := cmp.Or(p.cfg.SysFS, "/sys")
	addr := strings.ToLower(domain[len(domain)-4:] + ":" + rest)
	b, err := os.ReadFile(filepath.Join(root, "bus/pci/devices", filepath.Base(addr), "numa_node"))
	if err != nil {
		return gpu.Unknown
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 {
		return gpu.Unknown
	}
	return n
}
