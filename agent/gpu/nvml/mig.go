//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/berth-scheduler/berth/agent/gpu"
)

var _ gpu.Cutter = (*Provider)(nil)

// cutter is the part of a Provider that describes and replaces MIG instances.
type cutter struct{ p *Provider }

// cutCalls are the calls without which instances are neither placed nor replaced.
var cutCalls = []string{
	"nvmlDeviceGetHandleByUUID", "nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo",
	"nvmlGpuInstanceDestroy", "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceGetComputeInstanceById",
	"nvmlComputeInstanceDestroy", "nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceCreateComputeInstance",
}

// cuts reports whether the driver has all of them.
func (c cutter) cuts() bool {
	return !slices.ContainsFunc(cutCalls, func(s string) bool { return !c.p.has(s) }) &&
		c.p.hasAny("nvmlDeviceGetGpuInstancePossiblePlacements", "nvmlDeviceGetGpuInstancePossiblePlacements_v2")
}

// sized is a profile with what the driver knows it by.
type sized struct {
	gpu.Profile
	info lib.GpuInstanceProfileInfo
}

// sizes returns the profiles of a GPU in MIG mode. Of those of one name, which differ in
// engines for media, it returns the first.
func (cutter) sizes(d lib.Device) []sized {
	var out []sized
	for i := range lib.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := d.GetGpuInstanceProfileInfo(i)
		if ret != lib.SUCCESS || info.SliceCount == 0 {
			continue // the GPU does not have it
		}
		s := sized{info: info, Profile: gpu.Profile{
			Name: profile(lib.DeviceAttributes{
				GpuInstanceSliceCount: info.SliceCount, ComputeInstanceSliceCount: info.SliceCount, MemorySizeMB: info.MemorySizeMB,
			}),
			MemMiB: int64(info.MemorySizeMB), Compute: int(info.SliceCount),
		}}
		places, ret := d.GetGpuInstancePossiblePlacements(&info)
		if ret != lib.SUCCESS || len(places) == 0 || slices.ContainsFunc(out, func(o sized) bool { return o.Name == s.Name }) {
			continue
		}
		for _, at := range places {
			s.Size, s.Starts = int(at.Size), append(s.Starts, int(at.Start))
		}
		slices.Sort(s.Starts)
		out = append(out, s)
	}
	return out
}

// place adds to instances where they are on a GPU, and returns its profiles.
func (c cutter) place(d lib.Device, instances []gpu.Instance) (out []gpu.Profile) {
	if !c.cuts() {
		return nil
	}
	for i := range instances {
		in := &instances[i]
		gi, ret := d.GetGpuInstanceById(in.GI)
		if ret != lib.SUCCESS {
			continue
		}
		if info, ret := gi.GetInfo(); ret == lib.SUCCESS {
			in.Start, in.Size = int(info.Placement.Start), int(info.Placement.Size)
		}
	}
	for _, s := range c.sizes(d) {
		out = append(out, s.Profile)
	}
	return out
}

// Cut implements gpu.Cutter. The driver itself refuses to destroy what is in use.
func (c cutter) Cut(_ context.Context, cut gpu.Cut) error {
	if err := cut.Check(); err != nil {
		return err
	}
	if !c.cuts() {
		return errors.New("the driver lacks the calls to cut GPUs; update it")
	}
	return c.p.onCard(cut.UUID, func(d lib.Device) error {
		if err := c.drop(d, cut.Drop); err != nil {
			return err
		}
		sizes := c.sizes(d)
		for _, piece := range cut.Make {
			i := slices.IndexFunc(sizes, func(s sized) bool { return s.Name == piece.Profile })
			if i < 0 {
				return fmt.Errorf("%w: %s has no profile %s", gpu.ErrUnknownCard, cut.UUID, piece.Profile)
			}
			if err := create(d, &sizes[i], piece.Start); err != nil {
				return fmt.Errorf("make %s at slice %d: %w", piece.Profile, piece.Start, err)
			}
		}
		return nil
	})
}

// drop destroys instances. One that shares its part of the GPU with another, which stays,
// is not destroyed.
func (c cutter) drop(d lib.Device, uuids []string) error {
	_, all, err := c.p.mig(d)
	if err != nil {
		return err
	}
	for _, uuid := range uuids {
		i := slices.IndexFunc(all, func(in gpu.Instance) bool { return in.UUID == uuid })
		if i < 0 {
			return fmt.Errorf("%w: instance %s", gpu.ErrUnknownCard, uuid)
		}
		in := all[i]
		if slices.ContainsFunc(all, func(o gpu.Instance) bool { return o.GI == in.GI && !slices.Contains(uuids, o.UUID) }) {
			return fmt.Errorf("instance %s shares GPU instance %d with another", uuid, in.GI)
		}
		gi, ret := d.GetGpuInstanceById(in.GI)
		if err := check("nvmlDeviceGetGpuInstanceById", ret); err != nil {
			return err
		}
		ci, ret := gi.GetComputeInstanceById(in.CI)
		if err := check("nvmlGpuInstanceGetComputeInstanceById", ret); err != nil {
			return err
		}
		if err := check("nvmlComputeInstanceDestroy", ci.Destroy()); err != nil {
			return fmt.Errorf("destroy instance %s: %w", uuid, err)
		}
		all = slices.Delete(all, i, i+1)
		if slices.ContainsFunc(all, func(o gpu.Instance) bool { return o.GI == in.GI }) {
			continue // the last of them takes it along
		}
		if err := check("nvmlGpuInstanceDestroy", gi.Destroy()); err != nil {
			return fmt.Errorf("destroy instance %s: %w", uuid, err)
		}
	}
	return nil
}

// create makes an instance with one compute instance of all of it.
func create(d lib.Device, s *sized, start int) error {
	gi, ret := d.CreateGpuInstanceWithPlacement(&s.info, &lib.GpuInstancePlacement{Start: uint32(start), Size: uint32(s.Size)})
	if err := check("nvmlDeviceCreateGpuInstanceWithPlacement", ret); err != nil {
		return err
	}
	err := errors.New("the driver offers no compute instance of that size")
	for i := range lib.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gi.GetComputeInstanceProfileInfo(i, lib.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != lib.SUCCESS || info.SliceCount != s.info.SliceCount {
			continue
		}
		_, ret = gi.CreateComputeInstance(&info)
		if err = check("nvmlGpuInstanceCreateComputeInstance", ret); err == nil {
			return nil
		}
		break
	}
	return errors.Join(err, check("nvmlGpuInstanceDestroy", gi.Destroy()))
}
