package containerdrt

import (
	"context"
	"github.com/berth-scheduler/berth/agent/jobside"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/cgroup"
)

// cpuPeriod is the time over which a cap of the CPU is kept, in microseconds.
const cpuPeriod = 100_000

// specOpts builds the OCI spec of an attempt. Nothing in it comes from an
// image but the PATH: no user, label, hook, capability or device. Cards come from
// CDI specifications alone, after all that might undo them.
func (r *Runtime) specOpts(l *agent.Launch, imageEnv []string, b *binds) ([]oci.SpecOpts, error) {
	env, odd := splitEnv(l.Env)
	if len(odd) > 0 && l.Image != "" {
		r.cfg.Log.Warn("variables that are no UTF-8 do not reach an image job", "task", l.ID.String(), "count", len(odd))
	}
	opts := []oci.SpecOpts{
		oci.WithDefaultSpec(),
		withEnv(commandsFirst(l, append(keepPath(imageEnv, env), env...))),
		withUser(l),
		oci.WithCapabilities(nil),
		oci.WithNoNewPrivileges,
		oci.WithHostHostsFile, oci.WithHostResolvconf,
		oci.WithCgroup(path.Join(r.cfg.CgroupParent, r.name(l.ID))),
		withOOMScore(0),
	}
	policy, err := r.cfg.Policy.sized(l)
	if err != nil {
		return nil, err
	}
	opts = append(opts, r.limits(l, policy)...)
	if policy.network(l) == NetHost {
		opts = append(opts, oci.WithHostNamespace(specs.NetworkNamespace))
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
			oci.WithProcessCwd("/"), oci.WithProcessArgs(jobside.Binary, jobside.LoggerArg, jobside.File))
	} else {
		args, helper, err := r.imageArgs(l)
		if err != nil {
			return nil, err
		}
		opts = append(opts, oci.WithProcessArgs(args...), oci.WithProcessCwd(l.Dir), oci.WithMounts(helper),
			oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.CgroupNamespace}),
			oci.WithMounts([]specs.Mount{{
				Destination: "/tmp", Type: "tmpfs", Source: "tmpfs",
				Options: []string{"nosuid", "nodev", "mode=1777", "size=" + strconv.FormatInt(policy.TmpBytes, 10)},
			}}))
		if policy.ReadOnlyRoot || l.ReadOnlyRoot {
			opts = append(opts, oci.WithRootFSReadonly())
		}
	}
	opts = append(opts, oci.WithMounts(b.specs))
	devices, err := r.withDevices(l)
	if err != nil {
		return nil, err
	}
	opts = append(opts, devices)
	// The profile depends on the capabilities, so it comes last.
	return append(opts, seccomp.WithDefaultProfile()), nil
}

// limits are what the control group and the kernel keep a job to.
func (r *Runtime) limits(l *agent.Launch, p Policy) []oci.SpecOpts {
	files := fileLimit(p.Files)
	opts := []oci.SpecOpts{
		oci.WithPidsLimit(p.Pids),
		oci.WithRlimit(&specs.POSIXRlimit{Type: "RLIMIT_NOFILE", Soft: files, Hard: files}),
		oci.WithRlimit(&specs.POSIXRlimit{Type: "RLIMIT_CORE"}),
		oci.WithDevShmSize(p.shmBytes(l.MemBytes) >> 10),
	}
	if l.MemBytes > 0 {
		// Equal limits for memory and memory with swap mean no swap.
		opts = append(opts, oci.WithMemoryLimit(uint64(l.MemBytes)), oci.WithMemorySwap(l.MemBytes))
	}
	if l.CPUMilli > 0 {
		opts = append(opts, oci.WithCPUShares(uint64(max(2, l.CPUMilli*1024/1000))))
		if p.HardCPU {
			opts = append(opts, oci.WithCPUCFS(max(cpuPeriod/100, l.CPUMilli*cpuPeriod/1000), cpuPeriod))
		}
	}
	if p.CPUSet != "" {
		opts = append(opts, oci.WithCPUs(p.CPUSet))
	}
	return opts
}

// caps are those limits that must be found in force before a job starts.
func (r *Runtime) caps(l *agent.Launch) cgroup.Limits {
	c := cgroup.Limits{MemBytes: l.MemBytes, CPUSet: r.cfg.Policy.CPUSet}
	if r.cfg.Policy.HardCPU {
		c.CPUQuotaMilli = l.CPUMilli
	}
	return c
}

// fileLimit is how many files a job may open: not more than we may, since not
// every root can raise that.
func fileLimit(want uint64) uint64 {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		return 1024
	}
	return min(want, own.Max)
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
