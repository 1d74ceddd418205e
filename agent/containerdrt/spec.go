package containerdrt

import (
	"context"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cdi"
	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent"
)

// What every container is given.
const (
	pidsLimit    = 4096
	openFiles    = 65536
	defaultShmKB = 1 << 20
	tmpSize      = "size=1g"
)

// specOpts builds the OCI spec of an attempt. Nothing in it comes from an
// image but the PATH: no user, label, hook, capability or device.
func (r *Runtime) specOpts(l *agent.Launch, imageEnv []string) ([]oci.SpecOpts, error) {
	env, odd := splitEnv(l.Env)
	if len(odd) > 0 && l.Image != "" {
		r.cfg.Log.Warn("variables that are no UTF-8 do not reach an image job", "task", l.ID.String(), "count", len(odd))
	}
	opts := []oci.SpecOpts{
		oci.WithDefaultSpec(),
		withEnv(append(keepPath(imageEnv, env), env...)),
		withUser(l),
		oci.WithCapabilities(nil),
		oci.WithNoNewPrivileges,
		oci.WithHostNamespace(specs.NetworkNamespace),
		oci.WithHostHostsFile, oci.WithHostResolvconf,
		oci.WithCgroup(path.Join(r.cfg.CgroupParent, l.ID.String())),
		oci.WithPidsLimit(pidsLimit),
		oci.WithRlimit(&specs.POSIXRlimit{Type: "RLIMIT_NOFILE", Soft: fileLimit(), Hard: fileLimit()}),
		oci.WithRlimit(&specs.POSIXRlimit{Type: "RLIMIT_CORE"}),
		withOOMScore(0),
	}
	if l.MemBytes > 0 {
		// Equal limits for memory and memory with swap mean no swap.
		opts = append(opts, oci.WithMemoryLimit(uint64(l.MemBytes)), oci.WithMemorySwap(l.MemBytes), oci.WithDevShmSize(max(64<<10, l.MemBytes/2048)))
	} else {
		opts = append(opts, oci.WithDevShmSize(defaultShmKB))
	}
	if l.CPUMilli > 0 {
		opts = append(opts, oci.WithCPUShares(uint64(max(2, l.CPUMilli*1024/1000))))
	}
	if l.Image == "" {
		root, mounts, err := r.hostRoot(l.ID)
		if err != nil {
			return nil, err
		}
		// The node's own /etc and /run are there already. In the host's pid
		// namespace the job is not pid 1, for which the kernel drops SIGTERM;
		// the shim ends what it leaves behind by its control group.
		opts = append(opts, oci.WithHostNamespace(specs.PIDNamespace), oci.WithoutRunMount,
			oci.WithoutMounts("/etc/hosts", "/etc/resolv.conf"), oci.WithRootFSPath(root), oci.WithMounts(mounts),
			// The helper goes to the directory itself: runc would make one that
			// is not there, as root.
			oci.WithProcessCwd("/"), oci.WithProcessArgs(helperBinary, loggerArg, helperFile))
	} else {
		opts = append(opts, oci.WithProcessArgs(l.Args...), oci.WithProcessCwd(l.Dir), oci.WithMounts([]specs.Mount{{
			Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777", tmpSize},
		}}))
	}
	for _, m := range l.Mounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		opts = append(opts, oci.WithMounts([]specs.Mount{{
			Destination: m.Target, Type: "bind", Source: m.Source, Options: []string{"rbind", "nosuid", "nodev", mode},
		}}))
	}
	opts = append(opts, cdi.WithCDIDevices(l.CDIDevices...))
	// The profile depends on the capabilities, so it comes last.
	return append(opts, seccomp.WithDefaultProfile()), nil
}

// fileLimit is how many files a job may open: not more than we may, since not
// every root can raise that.
func fileLimit() uint64 {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		return 1024
	}
	return min(openFiles, own.Max)
}

// keepPath returns the image's PATH unless the job sets its own.
func keepPath(image, job []string) []string {
	for _, e := range job {
		if strings.HasPrefix(e, "PATH=") {
			return nil
		}
	}
	for _, e := range image {
		if strings.HasPrefix(e, "PATH=") {
			return []string{e}
		}
	}
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"}
}

// splitEnv tells apart what a container's configuration can carry, which is
// text, from the rest, which a host job's helper adds.
func splitEnv(env []string) (text, odd []string) {
	for _, e := range env {
		if utf8.ValidString(e) {
			text = append(text, e)
		} else {
			odd = append(odd, e)
		}
	}
	return text, odd
}

func withEnv(env []string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		s.Process.Env = env
		return nil
	}
}

// withUser sets numbers and nothing else: no name is looked up in an image.
func withUser(l *agent.Launch) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		s.Process.User = specs.User{UID: l.UID, GID: l.GID, AdditionalGids: l.Groups}
		return nil
	}
}

func withOOMScore(n int) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		s.Process.OOMScoreAdj = &n
		return nil
	}
}
