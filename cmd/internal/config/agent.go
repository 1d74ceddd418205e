package config

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/agent/hooks"
	"github.com/berth-scheduler/berth/cluster"
)

// Agent is the configuration of berth agent, written as Coordinator is.
type Agent struct {
	Node         Node        `yaml:"node"`
	Cluster      Cluster     `yaml:"cluster"`
	Coordinators []string    `yaml:"coordinators"`
	Listen       AgentListen `yaml:"listen"`
	TLS          AgentTLS    `yaml:"tls"`
	Data         Data        `yaml:"data"`
	Gossip       Gossip      `yaml:"gossip"`
	GPUs         GPUs        `yaml:"gpus"`
	Sharing      Sharing     `yaml:"sharing"`
	Runtime      Runtime     `yaml:"runtime"`
	Cgroup       Cgroup      `yaml:"cgroup"`
	Containers   Containers  `yaml:"containers"`
	Jobs         Jobs        `yaml:"jobs"`
	Users        Users       `yaml:"users"`
	// Unsafe names what is known to be unsafe on this node and accepted anyway;
	// see docs/nodes.md.
	Unsafe []string `yaml:"unsafe"`
	Log    Log      `yaml:"log"`
}

// Node names this node. The name must be the one in its certificate; the
// address is where others reach it, empty if they need not.
type Node struct {
	Name    string `yaml:"name"`
	Address string `yaml:"address"`
	// CPUs and MemoryMiB are what jobs may use in all; 0 means the whole
	// machine except a small part for its daemons.
	CPUs      int `yaml:"cpus"`
	MemoryMiB int `yaml:"memory_mib"`
	// Features are what jobs may request with --constraint.
	Features []string `yaml:"features"`
	// Data are the data sets on its disks, which jobs name with --data: NAME=/path is
	// one, /path/* is one for each folder in /path.
	Data []string `yaml:"data"`
}

// AgentListen is where a metrics scraper reaches the agent; empty disables it.
type AgentListen struct {
	Metrics string `yaml:"metrics"`
}

// AgentTLS names the files that berth agent join writes.
type AgentTLS struct {
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// GPUs says where the node's GPUs come from: nvml, sim, or none.
type GPUs struct {
	Provider string `yaml:"provider"`
	// Sim describes simulated GPUs as COUNTxMODEL, for example 4xA100-80GB.
	Sim string `yaml:"sim"`
	// SimSocket is where jobs reach the simulated GPUs, in a directory that
	// every user may enter.
	SimSocket string `yaml:"sim_socket"`
	// SimCaps is sim if simulated GPUs refuse memory above a share, and watch
	// if that is left to the agent, as with drivers that enforce no cap.
	SimCaps string `yaml:"sim_caps"`
	// Only names the GPUs that are offered, by UUID, PCI address or index;
	// empty means all. The others belong to another scheduler.
	Only []string `yaml:"only"`
	// Recut lets the coordinator replace the instances of GPUs in MIG mode on
	// which nothing runs by others that waiting jobs need.
	Recut bool `yaml:"recut"`
	// Caps are the mechanisms that may hold a job to its share; each GPU uses
	// the best that it has. GPUs with none of them are not shared.
	Caps  []string `yaml:"caps"`
	Watch GPUWatch `yaml:"watch"`
	CDI   CDI      `yaml:"cdi"`
	// Health says how the GPUs are monitored.
	Health GPUHealth `yaml:"health"`
}

// Runtime says what runs jobs. auto uses containerd if its socket exists.
type Runtime struct {
	Kind       string     `yaml:"kind"`
	Containerd Containerd `yaml:"containerd"`
	// AllowUncapped lets jobs run without their memory cap if the process
	// runtime finds no writable control groups.
	AllowUncapped bool `yaml:"allow_uncapped"`
}

// Containerd says how containerd is reached.
type Containerd struct {
	Socket    string `yaml:"socket"`
	Namespace string `yaml:"namespace"`
}

// Cgroup names the group under which each job gets its own.
type Cgroup struct {
	Parent string `yaml:"parent"`
}

// Jobs says how jobs are run.
type Jobs struct {
	// Env is added to each job's environment, as NAME=value.
	Env []string `yaml:"env"`
	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration `yaml:"grace"`
	// Scripts is a directory for batch scripts; every user must be able to
	// enter its parent folders, and only root to write to them.
	Scripts string `yaml:"scripts"`
	// Prolog and Epilog are programs that run as root before and after each
	// attempt, empty for none; HookTimeout is how long each may take.
	Prolog      string        `yaml:"prolog"`
	Epilog      string        `yaml:"epilog"`
	HookTimeout time.Duration `yaml:"hook_timeout"`
	// Detached is how long a user's shell or other command in a job is kept
	// after the connection broke or the user left it; 0 keeps none.
	Detached time.Duration `yaml:"detached"`
	// IdleLimit ends sessions (salloc, srun and berth run outside of jobs)
	// without typing or computing for that long; 0 never does.
	IdleLimit time.Duration `yaml:"idle_limit"`
}

// DefaultAgent returns the configuration of an empty file. It lacks
// node.name, cluster.id and coordinators, which have no default.
func DefaultAgent() Agent {
	return Agent{
		Listen:     AgentListen{Metrics: "127.0.0.1:7073"},
		TLS:        AgentTLS{CA: "/etc/berth/tls/ca.crt", Cert: "/etc/berth/tls/agent.crt", Key: "/etc/berth/tls/agent.key"},
		Data:       Data{Dir: "/var/lib/berth/agent"},
		Gossip:     Gossip{Addr: "0.0.0.0:7072", KeyFile: "/etc/berth/gossip.key"},
		GPUs:       GPUs{Provider: "nvml", SimSocket: "/run/berth/sim/cards", SimCaps: "sim", Caps: capModes(), Watch: defaultWatch(), Health: defaultHealth(), CDI: CDI{Dirs: []string{"/etc/cdi", "/var/run/cdi"}}},
		Sharing:    defaultSharing(),
		Runtime:    Runtime{Kind: "auto", Containerd: Containerd{Socket: "/run/containerd/containerd.sock", Namespace: "berth"}},
		Cgroup:     Cgroup{Parent: "/berth"},
		Containers: defaultContainers(),
		Jobs:       Jobs{Grace: 30 * time.Second, Scripts: "/run/berth-scripts", HookTimeout: time.Minute, Detached: 12 * time.Hour},
		Users:      Users{MinUID: 1000},
		Log:        Log{Level: "info", Format: "auto"},
	}
}

// Validate reports all problems by key, with what is allowed; it reads no
// files. The error is a Problems.
func (a *Agent) Validate() error {
	var p Problems
	p.name("node.name", a.Node.Name)
	if a.Node.Address != "" {
		p.dialAddr("node.address", a.Node.Address)
	}
	p.number("node.cpus", a.Node.CPUs, 0, 4096)
	p.number("node.memory_mib", a.Node.MemoryMiB, 0, 64<<20)
	if err := cluster.CheckFeatures(slices.Compact(slices.Sorted(slices.Values(a.Node.Features)))); err != nil {
		p.addf("node.features", "%v", err)
	}
	dataSets(&p, a.Node.Data, a.ownDirs()...)
	p.name("cluster.id", a.Cluster.ID)
	p.text("cluster.name", a.Cluster.Name, 200)
	p.coordinators(a.Coordinators)
	p.optionalAddr("listen.metrics", a.Listen.Metrics)
	p.path("tls.ca", a.TLS.CA, required)
	p.path("tls.cert", a.TLS.Cert, required)
	p.path("tls.key", a.TLS.Key, required)
	p.path("data.dir", a.Data.Dir, required)
	p.gossip(a.Gossip)
	p.oneOf("gpus.provider", a.GPUs.Provider, "nvml", "sim", "none")
	if (a.GPUs.Provider == "sim") != (a.GPUs.Sim != "") {
		p.addf("gpus.sim", "is %q with gpus.provider %q; describe GPUs (4xA100-80GB) only for provider sim", a.GPUs.Sim, a.GPUs.Provider)
	}
	p.text("gpus.sim", a.GPUs.Sim, 1000)
	p.path("gpus.sim_socket", a.GPUs.SimSocket, required)
	p.gpuCaps(a.GPUs, a.Sharing)
	p.gpuOffer(a.GPUs.Only)
	p.gpuHealth(a.GPUs.Health)
	p.oneOf("runtime.kind", a.Runtime.Kind, "auto", "containerd", "process")
	p.path("runtime.containerd.socket", a.Runtime.Containerd.Socket, required)
	p.name("runtime.containerd.namespace", a.Runtime.Containerd.Namespace)
	p.path("cgroup.parent", a.Cgroup.Parent, required)
	p.containers(a.Containers, a.ownDirs()...)
	p.jobs(a.Jobs)
	p.cdi(a.GPUs.CDI)
	p.users(a.Users)
	p.unsafe(a.Unsafe)
	p.log(a.Log)
	return p.err()
}

// Warnings lists what works but is unwise.
func (a *Agent) Warnings() []string {
	var w []string
	if len(a.Coordinators) == 1 {
		w = append(w, "coordinators: only one is listed; list all, so that the agent finds the others if that one is down")
	}
	if a.Runtime.Kind == "process" {
		w = append(w, "runtime.kind: process isolates jobs less than containerd does")
	}
	if a.Runtime.AllowUncapped {
		w = append(w, "runtime.allow_uncapped: a job over its memory may have the kernel end another user's; make control groups writable instead")
	}
	for _, k := range a.Unsafe {
		w = append(w, "unsafe: runs although "+k+" is known to be unsafe")
	}
	if a.Users.AllowRoot {
		w = append(w, "users.allow_root: jobs of root are root on this node")
	}
	return w
}

// CheckFiles reports, by key, files that are missing, not plain files, or
// keys that others can read. The error is a Problems.
func (a *Agent) CheckFiles() error {
	var p Problems
	p.file("tls.ca", a.TLS.CA, false)
	p.file("tls.cert", a.TLS.Cert, false)
	p.file("tls.key", a.TLS.Key, true)
	if a.Gossip.Addr != "" {
		p.file("gossip.key_file", a.Gossip.KeyFile, true)
	}
	p.dataDir("data.dir", a.Data.Dir)
	p.hook("jobs.prolog", a.Jobs.Prolog)
	p.hook("jobs.epilog", a.Jobs.Epilog)
	if len(a.GPUs.Health.Check) > 0 {
		p.hook("gpus.health.check", a.GPUs.Health.Check[0])
	}
	return p.err()
}

// hook checks a program that will run as root.
func (p *Problems) hook(key, path string) {
	if path == "" || !filepath.IsAbs(path) { // the latter is reported elsewhere
		return
	}
	if err := hooks.Check(path); err != nil {
		*p = append(*p, Problem{Key: key, Text: err.Error(), Err: err})
	}
}

func (p *Problems) coordinators(addrs []string) {
	if len(addrs) == 0 {
		p.addf("coordinators", "is empty; list the host:port of each coordinator")
	}
	if len(addrs) > 7 {
		p.addf("coordinators", "has %d addresses, want 1 to 7", len(addrs))
	}
	seen := map[string]int{}
	for i, addr := range addrs {
		p.dialAddr(indexed("coordinators", i), addr)
		if first, dup := seen[addr]; dup {
			p.addf(indexed("coordinators", i), "%q is also coordinators[%d]", addr, first)
		}
		seen[addr] = i
	}
}

func (p *Problems) jobs(j Jobs) {
	for i, line := range j.Env {
		name, _, ok := strings.Cut(line, "=")
		switch key := indexed("jobs.env", i); {
		case !ok || !envName(name):
			p.addf(key, "is %.60q, want NAME=value with a name of letters, digits and _", line)
		case strings.HasPrefix(name, "BERTH_"), strings.HasPrefix(name, "LD_"), strings.HasPrefix(name, "NVIDIA_"), strings.HasPrefix(name, "CUDA_VISIBLE"):
			p.addf(key, "sets %s; names that begin with BERTH_, LD_, NVIDIA_ and CUDA_VISIBLE are reserved for Berth", name)
		case strings.ContainsRune(line, 0) || len(line) > 4096:
			p.addf(key, "has %d bytes or a NUL, want at most 4096 bytes of text", len(line))
		}
	}
	p.span("jobs.grace", j.Grace, time.Second, time.Hour)
	p.span("jobs.detached", j.Detached, 0, 14*24*time.Hour)
	p.span("jobs.idle_limit", j.IdleLimit, 0, 14*24*time.Hour)
	p.path("jobs.scripts", j.Scripts, required)
	p.path("jobs.prolog", j.Prolog, optional)
	p.path("jobs.epilog", j.Epilog, optional)
	p.span("jobs.hook_timeout", j.HookTimeout, time.Second, time.Hour)
}

func envName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
