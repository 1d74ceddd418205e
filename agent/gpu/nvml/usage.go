//go:build linux && cgo

package nvml

import (
	"cmp"
	"maps"
	"slices"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// usage reads one card. The caller holds p.mu.
func (p *Provider) usage(d lib.Device) (gpu.Usage, error) {
	u := gpu.Usage{UtilMilli: gpu.Unknown, PowerW: gpu.Unknown, MemActivityMilli: gpu.Unknown, EnergyMJ: gpu.Unknown}
	var ret lib.Return
	if u.UUID, ret = d.GetUUID(); ret != lib.SUCCESS {
		return u, check("nvmlDeviceGetUUID", ret)
	}
	mem, err := p.memory(d)
	if err != nil {
		return u, err
	}
	u.UsedMiB = mib(mem.Used)
	if p.has("nvmlDeviceGetUtilizationRates") {
		rates, ret := d.GetUtilizationRates()
		switch {
		case ret == lib.SUCCESS:
			u.UtilMilli = 10 * int64(rates.Gpu)
		case !unsupported(ret):
			return u, check("nvmlDeviceGetUtilizationRates", ret)
		}
	}
	if p.has("nvmlDeviceGetPowerUsage") {
		if mw, ret := d.GetPowerUsage(); ret == lib.SUCCESS {
			u.PowerW = int64(mw / 1000)
		}
	}
	if u.Processes, err = p.processes(d, mem); err != nil {
		return u, err
	}
	p.utilization(d, &u)
	return u, nil
}

// processes lists who has a context on the card. Clients of an MPS server
// stand in a list of their own, and some drivers name a process in both.
func (p *Provider) processes(d lib.Device, mem lib.Memory_v2) ([]gpu.Process, error) {
	byPID := map[uint32]gpu.Process{}
	add := func(call string, infos []lib.ProcessInfo, ret lib.Return) error {
		if unsupported(ret) {
			return nil
		}
		for _, in := range infos {
			held := int64(gpu.Unknown)
			if in.UsedGpuMemory != notAvailable {
				held = mib(in.UsedGpuMemory)
			}
			if old, twice := byPID[in.Pid]; twice {
				held = max(held, old.MemMiB)
			}
			byPID[in.Pid] = gpu.Process{PID: int(in.Pid), MemMiB: held, UtilMilli: gpu.Unknown}
		}
		return check(call, ret)
	}
	if p.hasAny("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses") {
		infos, ret := d.GetComputeRunningProcesses()
		if err := add("nvmlDeviceGetComputeRunningProcesses", infos, ret); err != nil {
			return nil, err
		}
	}
	if p.hasAny("nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses") {
		infos, ret := d.GetMPSComputeRunningProcesses()
		if err := add("nvmlDeviceGetMPSComputeRunningProcesses", infos, ret); err != nil {
			return nil, err
		}
	}
	procs := slices.SortedFunc(maps.Values(byPID), func(a, b gpu.Process) int { return cmp.Compare(a.PID, b.PID) })
	byDifference(procs, mem)
	return procs, nil
}

// notAvailable is NVML_VALUE_NOT_AVAILABLE as an unsigned number.
const notAvailable = 1<<64 - 1

// byDifference gives the only process of unknown memory what is used beside
// the known ones. Without a reserve told apart, that would be too much.
func byDifference(procs []gpu.Process, mem lib.Memory_v2) {
	rest, unknown := mib(mem.Used), []int(nil)
	for i, pr := range procs {
		if pr.MemMiB == gpu.Unknown {
			unknown = append(unknown, i)
		} else {
			rest -= pr.MemMiB
		}
	}
	if len(unknown) == 1 && mem.Reserved > 0 {
		procs[unknown[0]].MemMiB = max(0, rest)
	}
}

// utilization fills each process's mean share of the card since the last call.
// It stays Unknown where the driver keeps no samples.
func (p *Provider) utilization(d lib.Device, u *gpu.Usage) {
	if !p.has("nvmlDeviceGetProcessUtilization") {
		return
	}
	since := p.seen[u.UUID]
	samples, ret := d.GetProcessUtilization(since)
	// The driver says "not found" when nobody computed since then, and
	// "insufficient size" when it has room for no sample to give.
	if ret != lib.SUCCESS && ret != lib.ERROR_NOT_FOUND && ret != lib.ERROR_INSUFFICIENT_SIZE {
		return
	}
	sum, count := map[int]int64{}, map[int]int64{}
	for _, s := range samples {
		if s.TimeStamp <= since {
			continue // old entries of the driver's ring, some with time zero
		}
		p.seen[u.UUID] = max(p.seen[u.UUID], s.TimeStamp)
		sum[int(s.Pid)] += 10 * int64(min(s.SmUtil, 100))
		count[int(s.Pid)]++
	}
	for i := range u.Processes {
		pr := &u.Processes[i]
		pr.UtilMilli = sum[pr.PID] / max(1, count[pr.PID])
	}
}
