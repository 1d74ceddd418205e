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

// runcRuntime is named for every container: the default of the namespace, or
// of containerd, may be the NVIDIA runtime, whose hook takes its orders from
// the variables of an image.
const runcRuntime = "io.containerd.runc.v2"

// withDevices gives a container its cards: their device nodes, and the rules of
// its control group that allow them and, by what runc denies at first, no
// others. The rules are part of the OCI spec, and the group is runc's own and no
// unit of systemd's, so that nothing takes them back later.
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
			// Should anybody wrap runc after all, it is to add nothing.
			s.Process.Env = append(slices.DeleteFunc(s.Process.Env, func(e string) bool {
				return strings.HasPrefix(e, "NVIDIA_VISIBLE_DEVICES=")
			}), "NVIDIA_VISIBLE_DEVICES=void")
		}
		return nil
	}, nil
}

// deviceError says that it is the node's fault, and no retry's matter.
func deviceError(err error) error {
	if _, ok := errors.AsType[*launch.Error](err); ok {
		return err
	}
	return &launch.Error{Code: 125, Reason: launch.ReasonCDI, Node: true, Err: err}
}
