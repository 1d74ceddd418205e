//go:build linux && cgo

package nvml

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// Usage implements gpu.Provider. If the driver reports no memory for a single process, that
// process gets what the others leave. A GPU in MIG mode is followed by its instances, each
// with its own memory and processes.
func (p *Provider) Usage(ctx context.Context) ([]gpu.Usage, error) {
	var out []gpu.Usage
	err := p.each(ctx, func(_ int, d lib.Device) error {
		u, err := p.usage(d)
		if err != nil {
			return err
		}
		parts, err := p.usageOfInstances(d)
		if err == nil {
			out = append(append(out, u), parts...)
		}
		return err
	})
	return out, err
}

// usageOfInstances reads the parts of a GPU in MIG mode; the driver reports power and
// utilization only for the whole GPU.
func (p *Provider) usageOfInstances(d lib.Device) ([]gpu.Usage, error) {
	var out []gpu.Usage
	_, err := p.eachInstance(d, func(m lib.Device) error {
		u := gpu.Usage{UtilMilli: gpu.Unknown, PowerW: gpu.Unknown, MemActivityMilli: gpu.Unknown, EnergyMJ: gpu.Unknown}
		var ret lib.Return
		if u.UUID, ret = m.GetUUID(); ret != lib.SUCCESS {
			return check("nvmlDeviceGetUUID", ret)
		}
		mem, err := p.memory(m)
		if err != nil {
			return err
		}
		u.UsedMiB, u.WithReserve = mib(mem.Used), mem.Reserved == 0
		if u.Processes, err = p.processes(m, mem); err != nil {
			return err
		}
		out = append(out, u)
		return nil
	})
	return out, err
}

// usage reads one GPU. The caller holds p.mu.
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
	u.UsedMiB, u.WithReserve = mib(mem.Used), mem.Reserved == 0
	if p.has("nvmlDeviceGetUtilizationRates") {
		rates, ret := d.GetUtilizationRates()
		switch {
		case ret == lib.SUCCESS:
			u.UtilMilli, u.MemActivityMilli = 10*int64(rates.Gpu), 10*int64(rates.Memory)
		case !unsupported(ret):
			return u, check("nvmlDeviceGetUtilizationRates", ret)
		}
	}
	if p.has("nvmlDeviceGetPowerUsage") {
		if mw, ret := d.GetPowerUsage(); ret == lib.SUCCESS {
			u.PowerW = int64(mw / 1000)
		}
	}
	if p.has("nvmlDeviceGetTemperature") {
		if t, ret := d.GetTemperature(lib.TEMPERATURE_GPU); ret == lib.SUCCESS {
			u.TemperatureC = int64(t)
		}
	}
	if p.has("nvmlDeviceGetTotalEnergyConsumption") {
		if mj, ret := d.GetTotalEnergyConsumption(); ret == lib.SUCCESS {
			u.EnergyMJ = int64(mj)
		}
	}
	if u.Processes, err = p.processes(d, mem); err != nil {
		return u, err
	}
	p.utilization(d, &u)
	return u, nil
}

// processes lists the processes with a context on the GPU. The driver keeps a list for each
// way of using it, and lists some processes in several.
func (p *Provider) processes(d lib.Device, mem lib.Memory_v2) ([]gpu.Process, error) {
	byPID := map[uint32]gpu.Process{}
	for _, l := range []struct {
		call string
		kind gpu.ProcessKinds
		list func() ([]lib.ProcessInfo, lib.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses", gpu.Compute, d.GetComputeRunningProcesses},
		{"nvmlDeviceGetGraphicsRunningProcesses", gpu.Graphics, d.GetGraphicsRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses", gpu.MPSClient, d.GetMPSComputeRunningProcesses},
	} {
		if !p.hasAny(l.call+"_v3", l.call+"_v2", l.call) {
			continue
		}
		infos, ret := l.list()
		if unsupported(ret) {
			continue
		}
		if err := check(l.call, ret); err != nil {
			return nil, err
		}
		for pid, held := range sum(infos) {
			pr, twice := byPID[pid]
			if !twice {
				pr = gpu.Process{PID: int(pid), MemMiB: gpu.Unknown, UtilMilli: gpu.Unknown}
			}
			// The lists report the same memory, so it is not added up.
			pr.MemMiB, pr.Kinds = max(pr.MemMiB, held), pr.Kinds|l.kind
			byPID[pid] = pr
		}
	}
	procs := slices.SortedFunc(maps.Values(byPID), func(a, b gpu.Process) int { return cmp.Compare(a.PID, b.PID) })
	byDifference(procs, mem)
	// A process of another pid namespace is reported as 0 and cannot be identified.
	return slices.DeleteFunc(procs, func(pr gpu.Process) bool { return pr.PID == 0 }), nil
}

// sum adds up what each process of one list holds in MiB. A process listed twice uses two
// parts of a GPU in MIG mode, unless the driver repeats itself. If any of a process's
// memory is not reported, the sum is Unknown.
func sum(infos []lib.ProcessInfo) map[uint32]int64 {
	type place struct{ pid, gi, ci uint32 }
	seen := make(map[place]struct{}, len(infos))
	bytes := make(map[uint32]uint64, len(infos))
	for _, in := range infos {
		at := place{in.Pid, in.GpuInstanceId, in.ComputeInstanceId}
		if _, again := seen[at]; again {
			continue
		}
		seen[at] = struct{}{}
		if was := bytes[in.Pid]; was == notAvailable || in.UsedGpuMemory == notAvailable {
			bytes[in.Pid] = notAvailable
		} else {
			bytes[in.Pid] = was + in.UsedGpuMemory
		}
	}
	out := make(map[uint32]int64, len(bytes))
	for pid, n := range bytes {
		out[pid] = gpu.Unknown
		if n != notAvailable {
			out[pid] = mib(n)
		}
	}
	return out
}

// notAvailable is NVML_VALUE_NOT_AVAILABLE as an unsigned number.
const notAvailable = 1<<64 - 1

// byDifference assigns the only process of unknown memory what is used beyond the known
// ones. Where the reserve is not separated, that would be too much.
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

// share is what the driver's samples say about the processes of a GPU. The driver takes
// several a second at best, so a look in between finds none.
type share struct {
	newest uint64        // time of the newest sample, in the driver's microseconds
	came   time.Time     // when it was read
	milli  map[int]int64 // by pid, the mean of the last samples
}

// sampleLife is how long samples remain valid when no newer ones arrive.
const sampleLife = 2 * time.Second

// utilization fills in each process's mean share of the GPU since the last call that found
// samples. It stays Unknown where the driver keeps none.
func (p *Provider) utilization(d lib.Device, u *gpu.Usage) {
	if !p.has("nvmlDeviceGetProcessUtilization") {
		return
	}
	s := p.share[u.UUID]
	if s == nil {
		s = &share{}
		p.share[u.UUID] = s
	}
	samples, ret := d.GetProcessUtilization(s.newest)
	// The driver says "not found" when nothing has been computed since then, and
	// "insufficient size" when it has no sample to return.
	if ret != lib.SUCCESS && ret != lib.ERROR_NOT_FOUND && ret != lib.ERROR_INSUFFICIENT_SIZE {
		return
	}
	s.add(samples, time.Now())
	for i := range u.Processes {
		pr := &u.Processes[i]
		milli, sampled := s.milli[pr.PID]
		// The computation of MPS clients is sampled as their server's, if at all: only on
		// an idle GPU are they known to do nothing.
		if sampled || pr.Kinds&gpu.MPSClient == 0 || u.UtilMilli == 0 {
			pr.UtilMilli = milli
		}
	}
}

// add records samples taken up to now.
func (s *share) add(samples []lib.ProcessUtilizationSample, now time.Time) {
	since := s.newest
	sum, count := map[int]int64{}, map[int]int64{}
	for _, sm := range samples {
		if sm.TimeStamp <= since {
			continue // old entries of the driver's ring, some with time zero
		}
		s.newest = max(s.newest, sm.TimeStamp)
		sum[int(sm.Pid)] += 10 * int64(min(sm.SmUtil, 100))
		count[int(sm.Pid)]++
	}
	if len(sum) == 0 {
		if now.Sub(s.came) > sampleLife {
			s.milli = nil // nothing computes any more
		}
		return
	}
	for pid, n := range count {
		sum[pid] /= n
	}
	s.milli, s.came = sum, now
}
