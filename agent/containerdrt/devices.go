package containerdrt

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/berth-scheduler/berth/agent/gpu/cdi"
	"github.com/berth-scheduler/berth/agent/launch"
)

// runcRuntime is set for every container: the default of the namespace, or of containerd,
// may be the NVIDIA runtime, whose hook obeys variables of an image.
const runcRuntime = "io.containerd.runc.v2"

// withDevices gives a container its GPUs: their device nodes, and the rules of its control
// group that allow them and, since runc denies all others first, nothing else. The rules
// are part of the OCI spec, and the group belongs to runc and is no systemd unit, so
// nothing reverts them later.
func (b *builder) withDevices(l *launch.Launch) (oci.SpecOpts, error) {
	root := cdi.HostRoot
	if l.Image != "" {
		root = cdi.ImageRoot
	}
	edits, err := b.cfg.Devices.Edits(l.CDIDevices, root)
	if err != nil {
		return nil, deviceError(err)
	}
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		if err := edits.Apply(s); err != nil {
			return deviceError(err)
		}
		if root == cdi.ImageRoot && len(l.CDIDevices) > 0 {
			// If anything wraps runc after all, it must add nothing.
			s.Process.Env = append(slices.DeleteFunc(s.Process.Env, func(e string) bool {
				return strings.HasPrefix(e, "NVIDIA_VISIBLE_DEVICES=")
			}), "NVIDIA_VISIBLE_DEVICES=void")
		}
		return nil
	}, nil
}

// deviceError marks an error as the node's fault, which no retry fixes.
func deviceError(err error) error {
	if _, ok := errors.AsType[*launch.Error](err); ok {
		return err
	}
	return &launch.Error{Code: 125, Reason: launch.ReasonCDI, Node: true, Err: err}
}
