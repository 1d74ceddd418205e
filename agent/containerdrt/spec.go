package containerdrt

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/jobside"
	"github.com/berth-scheduler/berth/agent/launch"
)

// cpuPeriod is the period over which a CPU cap is enforced, in microseconds.
const cpuPeriod = 100_000

// builder builds the specification of each container.
type builder struct {
	cfg     *Config
	records records
	tries   *tryBook
	roots   hostRoots
}

// specOpts builds the OCI spec of an attempt. Nothing in it comes from an image except
// PATH: no user, label, hook, capability or device. GPUs come from CDI specifications
// alone, applied after everything that might undo them.
func (b *builder) specOpts(l *launch.Launch, imageEnv []string, mounts *binds) ([]oci.SpecOpts, error) {
	env, odd := splitEnv(l.Env)
	if len(odd) > 0 && l.Image != "" {
		b.cfg.Log.Warn("variables that are no UTF-8 do not reach an image job", "task", l.ID.String(), "count", len(odd))
	}
	opts := []oci.SpecOpts{
		oci.WithDefaultSpec(),
		withEnv(commandsFirst(l, append(keepPath(imageEnv, env), env...))),
		withUser(l),
		oci.WithCapabilities(nil),
		oci.WithNoNewPrivileges,
		oci.WithHostHostsFile, oci.WithHostResolvconf,
		oci.WithCgroup(path.Join(b.cfg.CgroupParent, b.tries.name(l.ID))),
		withOOMScore(0),
	}
	policy, err := b.cfg.Policy.sized(l)
	if err != nil {
		return nil, err
	}
	opts = append(opts, b.limits(l, policy)...)
	if policy.network(l) == NetHost {
		opts = append(opts, oci.WithHostNamespace(specs.NetworkNamespace))
	}
	if l.Image == "" {
		root, node, err := b.roots.make(l.ID)
		if err != nil {
			return nil, err
		}
		// The node's own /etc and /run are there already. In the host's pid namespace the
		// job is not pid 1, for which the kernel drops SIGTERM; the shim kills what it
		// leaves behind by its control group.
		opts = append(opts, oci.WithHostNamespace(specs.PIDNamespace), oci.WithoutRunMount,
			oci.WithoutMounts("/etc/hosts", "/etc/resolv.conf"), oci.WithRootFSPath(root), oci.WithMounts(node),
			// The helper changes to the directory itself: runc would create a missing one,
			// as root.
			oci.WithProcessCwd("/"), oci.WithProcessArgs(jobside.Binary, jobside.LoggerArg, jobside.File))
	} else {
		args, helper, err := b.imageArgs(l)
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
	opts = append(opts, oci.WithMounts(mounts.specs))
	devices, err := b.withDevices(l)
	if err != nil {
		return nil, err
	}
	opts = append(opts, devices)
	// The profile depends on the capabilities, so it comes last.
	return append(opts, seccomp.WithDefaultProfile()), nil
}

// writeHelperSpec writes the helper's instructions. The job's user may read the file, but
// can reach it only where it is mounted in one of the user's containers.
func (b *builder) writeHelperSpec(l *launch.Launch) error {
	bare := *l
	bare.Env = nil
	if l.Image == "" {
		_, bare.Env = splitEnv(l.Env)
	}
	home := slices.ContainsFunc(l.Env, func(e string) bool { return strings.HasPrefix(e, "HOME=") })
	data, err := json.Marshal(jobside.Spec{Exec: l.Image == "", DropHome: !home, MaxBytes: b.cfg.Policy.LogBytes, Launch: &bare})
	if err != nil {
		return err
	}
	return os.WriteFile(b.records.file(l.ID, kindHelper), data, 0o644)
}

// limits are the limits that the control group and the kernel enforce on a job.
func (b *builder) limits(l *launch.Launch, p Policy) []oci.SpecOpts {
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
		if p.HardCPU && !l.WeighCores {
			opts = append(opts, oci.WithCPUCFS(max(cpuPeriod/100, l.CPUMilli*cpuPeriod/1000), cpuPeriod))
		}
	}
	if p.CPUSet != "" {
		opts = append(opts, oci.WithCPUs(p.CPUSet))
	}
	return opts
}

// caps are the limits that must be verified to be in force before a job starts.
func (b *builder) caps(l *launch.Launch) cgroup.Limits {
	c := cgroup.Limits{MemBytes: l.MemBytes, CPUSet: b.cfg.Policy.CPUSet}
	if b.cfg.Policy.HardCPU && !l.WeighCores {
		c.CPUQuotaMilli = l.CPUMilli
	}
	return c
}

// fileLimit returns how many files a job may open: no more than we may, since not every
// root can raise that.
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

// splitEnv separates what a container's configuration can carry, which is text, from the
// rest, which a host job's helper adds.
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

// withUser sets numeric ids only: no name is looked up in an image.
func withUser(l *launch.Launch) oci.SpecOpts {
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
