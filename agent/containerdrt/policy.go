package containerdrt

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
)

// Network is what a node's containers see of its network.
type Network = cluster.Network

// The networks; see cluster.Network.
const (
	NetHost = cluster.NetHost
	NetNone = cluster.NetNone
)

// Policy is what a node grants its containers; the zero value is the default. What is not
// here, no policy changes: no capabilities, no new privileges, the seccomp profile, masked
// paths, and the user's own ids.
type Policy struct {
	// Network is NetHost when empty.
	Network Network
	// ReadOnlyRoot keeps image jobs from writing outside their mounts, /tmp, /run and
	// /dev/shm.
	ReadOnlyRoot bool
	// TmpBytes is the size of an image job's own /tmp, 1 GiB when 0. ShmBytes
	// is that of /dev/shm; 0 is half of the job's memory, 1 GiB without a cap.
	// Both count against the job's memory cap.
	TmpBytes, ShmBytes int64
	// Pids caps the processes and threads of a job, 4096 when 0; Files caps the open files
	// of a process, 65,536 when 0.
	Pids  int64
	Files uint64
	// LogBytes caps what one run of an image job adds to each of its output files; 0 means
	// no cap. A host job writes its files itself, limited by its user's quota.
	LogBytes int64
	// HardCPU makes the cores that a job requests a cap. Otherwise they are a weight, and a
	// job may use what others leave idle.
	HardCPU bool
	// CPUSet lists the CPUs that jobs may run on, such as "0-7,16"; empty means all.
	CPUSet string
	// Mounts lists the directories of the node below which the source of a bind mount must
	// be. Empty allows none.
	Mounts []string
	// Registries is as in ImagesConfig.
	Registries []string
}

const (
	defaultPids  = 4096
	defaultFiles = 65536
	defaultBytes = 1 << 30
	minBytes     = 1 << 20
)

// withDefaults fills in zero values.
func (p Policy) withDefaults() Policy {
	p.Network = cmp.Or(p.Network, NetHost)
	p.TmpBytes = cmp.Or(p.TmpBytes, defaultBytes)
	p.Pids = cmp.Or(p.Pids, defaultPids)
	p.Files = cmp.Or(p.Files, defaultFiles)
	return p
}

// shmBytes returns the size of /dev/shm under a memory cap, 0 meaning no cap.
func (p Policy) shmBytes(memCap int64) int64 {
	switch {
	case p.ShmBytes > 0:
		return p.ShmBytes
	case memCap > 0:
		return max(64<<20, memCap/2)
	default:
		return defaultBytes
	}
}

// network returns the network that a job sees, by its own choice or the node's.
func (p Policy) network(l *launch.Launch) Network {
	return cmp.Or(l.Network, p.Network)
}

// sized returns the policy for a job with sizes of its own. They may be as large as the
// node allows, or as the job's own memory cap, against which they count.
func (p Policy) sized(l *launch.Launch) (Policy, error) {
	for _, s := range []struct {
		what, key   string
		asked, most int64
		to          *int64
	}{
		{"/tmp", "tmp_mib", l.TmpBytes, p.TmpBytes, &p.TmpBytes},
		{"/dev/shm", "shm_mib", l.ShmBytes, p.shmBytes(l.MemBytes), &p.ShmBytes},
	} {
		if s.asked == 0 {
			continue
		}
		most := max(s.most, l.MemBytes)
		if s.asked < minBytes || s.asked > most {
			return p, &launch.Error{Code: 125, Reason: "SIZE", Err: fmt.Errorf(
				"%s of %d MiB: this node gives the job 1 to %d MiB, its memory cap or what containers.%s in its agent.yaml says; ask for less, or for memory with --mem",
				s.what, s.asked>>20, most>>20, s.key)}
		}
		*s.to = s.asked
	}
	return p, nil
}

// neverMounted are directories that are not user data: a job with access to them could
// control the node, or other jobs.
var neverMounted = []string{"/proc", "/sys", "/dev", "/etc", "/boot", "/root", "/var/run", "/run/containerd", "/var/lib/containerd"}

// validate reports the first rule that the policy breaks. own are the directories and
// sockets of the node's daemons.
func (p Policy) validate(own ...string) error {
	if p.Network != "" && p.Network != NetHost && p.Network != NetNone {
		return fmt.Errorf("network is %q, want host or none", p.Network)
	}
	for _, n := range []struct {
		name string
		got  int64
		min  int64
	}{
		{"tmp size", p.TmpBytes, minBytes}, {"shm size", p.ShmBytes, minBytes}, {"log size", p.LogBytes, minBytes}, {"pids", p.Pids, 16},
	} {
		if n.got != 0 && n.got < n.min {
			return fmt.Errorf("%s is %d, want %d or more, or 0 for the default", n.name, n.got, n.min)
		}
	}
	if p.Files != 0 && p.Files < 64 {
		return fmt.Errorf("open files is %d, want 64 or more, or 0 for the default", p.Files)
	}
	if err := (cgroup.Limits{CPUSet: p.CPUSet}).Validate(); err != nil {
		return err
	}
	for _, m := range p.Mounts {
		if err := CheckMountable(m, own...); err != nil {
			return fmt.Errorf("mount %w", err)
		}
	}
	return nil
}

// CheckMountable reports whether a node may let its jobs mount what is below dir. own are
// directories of the node's daemons, which no job may see.
func CheckMountable(dir string, own ...string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/" {
		return fmt.Errorf("%q: want the absolute path of a directory other than /, without dots", dir)
	}
	for _, bad := range slices.Concat(neverMounted, own) {
		if within(dir, bad) || within(bad, dir) {
			return fmt.Errorf("%s would show jobs %s; list directories of users' data only", dir, bad)
		}
	}
	return nil
}

// IsCPUSet reports whether s lists CPUs as the kernel reads them, such as 0-7,16, or is
// empty.
func IsCPUSet(s string) bool { return cgroup.Limits{CPUSet: s}.Validate() == nil }

// within reports whether a clean path is dir or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
