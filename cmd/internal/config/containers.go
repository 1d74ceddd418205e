package config

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/agent/containerdrt"
	"github.com/berth-scheduler/berth/agent/datasets"
)

// Containers says what the node gives its containers, both those of images
// and those of jobs on the node's own files. Nothing else can be configured:
// no capabilities, no new privileges, the seccomp profile, masked paths.
type Containers struct {
	// Network is what jobs see that do not choose: host, the node's, or none,
	// a loopback interface alone. Networks are what they may choose; empty
	// means Network and none.
	Network  string   `yaml:"network"`
	Networks []string `yaml:"networks"`
	// ReadOnly keeps image jobs from writing outside of their mounts, /tmp,
	// /run and /dev/shm. Otherwise each job chooses.
	ReadOnly bool `yaml:"read_only"`
	// TmpMiB is the size of an image job's own /tmp, ShmMiB that of /dev/shm,
	// 0 for half of the job's memory. Both count against the job's memory.
	TmpMiB int `yaml:"tmp_mib"`
	ShmMiB int `yaml:"shm_mib"`
	// Pids caps the processes and threads of a job, Files the open files of a
	// process.
	Pids  int `yaml:"pids"`
	Files int `yaml:"files"`
	// LogMiB caps what one run of an image job adds to each of its output
	// files; 0 means no cap.
	LogMiB int `yaml:"log_mib"`
	// HardCPU makes the cores of a job a cap; otherwise they are a weight.
	HardCPU bool `yaml:"hard_cpu"`
	// CPUs are the processors that jobs may run on, as 0-7,16; empty means all.
	CPUs string `yaml:"cpus"`
	// Mounts lists the node's directories that image jobs may mount parts of.
	Mounts []string `yaml:"mounts"`
	// Registries are the allowed prefixes of the names of images that jobs
	// pull: a registry, or a folder in one. Empty allows any.
	Registries []string `yaml:"registries"`
	// Cluster lets image jobs reach the cluster as their users, as jobs on the
	// node's own files do: software in an image could then submit jobs outside
	// of it.
	Cluster bool `yaml:"cluster"`
}

func defaultContainers() Containers {
	return Containers{Network: "host", Networks: []string{}, TmpMiB: 1024, Pids: 4096, Files: 65536, Mounts: []string{}, Registries: []string{}}
}

// Bounds of sizes, and the most directories in containers.mounts.
const (
	maxTmpMiB = 16 << 20
	maxLogMiB = 64 << 20
	maxPids   = 4 << 20
	maxFiles  = 1 << 20
	maxMounts = 64
)

// Policy returns c for the runtime.
func (c Containers) Policy() containerdrt.Policy {
	return containerdrt.Policy{
		Network: containerdrt.Network(c.Network), ReadOnlyRoot: c.ReadOnly,
		TmpBytes: int64(c.TmpMiB) << 20, ShmBytes: int64(c.ShmMiB) << 20,
		Pids: int64(c.Pids), Files: uint64(c.Files), LogBytes: int64(c.LogMiB) << 20,
		HardCPU: c.HardCPU, CPUSet: c.CPUs, Mounts: slices.Clone(c.Mounts), Registries: slices.Clone(c.Registries),
	}
}

// containers checks a node's policy. own are the directories of its daemons,
// which no job may see.
func (p *Problems) containers(c Containers, own ...string) {
	p.oneOf("containers.network", c.Network, "host", "none")
	for i, n := range c.Networks {
		p.oneOf(indexed("containers.networks", i), n, "host", "none")
	}
	if len(c.Networks) > 0 && !slices.Contains(c.Networks, c.Network) {
		p.addf("containers.networks", "lacks %q, the default set by containers.network; add it, or change that", c.Network)
	}
	for i, r := range c.Registries {
		if host, _, _ := strings.Cut(r, "/"); host == "" || strings.TrimRight(r, "/") != r || strings.ContainsAny(r, "@ \t") || strings.Contains(r, "://") {
			p.addf(indexed("containers.registries", i), "is %.80q, want a registry or a folder in one, as registry.example.org or docker.io/library", r)
		}
	}
	p.number("containers.tmp_mib", c.TmpMiB, 1, maxTmpMiB)
	p.number("containers.shm_mib", c.ShmMiB, 0, maxTmpMiB)
	p.number("containers.pids", c.Pids, 16, maxPids)
	p.number("containers.files", c.Files, 64, maxFiles)
	p.number("containers.log_mib", c.LogMiB, 0, maxLogMiB)
	if !containerdrt.IsCPUSet(c.CPUs) {
		p.addf("containers.cpus", "is %.80q, want processors and ranges of them as 0-7,16, or nothing for all", c.CPUs)
	}
	if len(c.Mounts) > maxMounts {
		p.addf("containers.mounts", "has %d directories, want at most %d", len(c.Mounts), maxMounts)
	}
	for i, dir := range c.Mounts {
		if err := containerdrt.CheckMountable(dir, own...); err != nil {
			p.addf(indexed("containers.mounts", i), "%v", err)
		}
	}
}

// dataSets checks the data sets that a node declares. own are the directories of its
// daemons.
func dataSets(p *Problems, entries []string, own ...string) {
	if len(entries) > datasets.Most {
		p.addf("node.data", "has %d entries, want at most %d", len(entries), datasets.Most)
	}
	for i, entry := range entries {
		_, dir, err := datasets.Parse(entry)
		if err == nil {
			err = containerdrt.CheckMountable(dir, own...)
		}
		if err != nil {
			p.addf(indexed("node.data", i), "%v", err)
		}
	}
}

// ownDirs returns directories that hold secrets or sockets of the node's daemons.
func (a *Agent) ownDirs() []string {
	var dirs []string
	for _, d := range []string{a.Data.Dir, filepath.Dir(a.Runtime.Containerd.Socket), filepath.Dir(a.TLS.Key)} {
		if filepath.IsAbs(d) && filepath.Clean(d) != "/" {
			dirs = append(dirs, filepath.Clean(d))
		}
	}
	return dirs
}
