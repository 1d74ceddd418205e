package openapi

import (
	"cmp"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// Nodes is what sinfo --json and scontrol show node --json of Slurm 22.05 print.
type Nodes struct {
	Meta   Meta     `json:"meta"`
	Errors []string `json:"errors"`
	Nodes  []Node   `json:"nodes"`
}

// NewNodes returns nodes in this form, in order.
func NewNodes(nodes []slurm.Node) Nodes {
	out := Nodes{Meta: NewMeta(), Errors: []string{}, Nodes: []Node{}}
	for i := range nodes {
		out.Nodes = append(out.Nodes, nodeOf(&nodes[i]))
	}
	return out
}

// Node is a node. Memory is MiB, times are Unix seconds, 0 for none.
type Node struct {
	Architecture              string   `json:"architecture"`
	BurstbufferNetworkAddress string   `json:"burstbuffer_network_address"`
	Boards                    int      `json:"boards"`
	BootTime                  int64    `json:"boot_time"`
	Comment                   string   `json:"comment"`
	Cores                     int      `json:"cores"`
	CPUBinding                int      `json:"cpu_binding"`
	CPULoad                   *int64   `json:"cpu_load"`
	Extra                     string   `json:"extra"`
	FreeMemory                int64    `json:"free_memory"`
	CPUs                      int64    `json:"cpus"`
	LastBusy                  int64    `json:"last_busy"`
	Features                  string   `json:"features"`
	ActiveFeatures            string   `json:"active_features"`
	Gres                      string   `json:"gres"`
	GresDrained               string   `json:"gres_drained"`
	GresUsed                  string   `json:"gres_used"`
	MCSLabel                  string   `json:"mcs_label"`
	Name                      string   `json:"name"`
	NextStateAfterReboot      string   `json:"next_state_after_reboot"`
	Address                   string   `json:"address"`
	Hostname                  string   `json:"hostname"`
	State                     string   `json:"state"`
	StateFlags                []string `json:"state_flags"`
	NextStateFlags            []string `json:"next_state_after_reboot_flags"`
	OperatingSystem           string   `json:"operating_system"`
	Owner                     *string  `json:"owner"`
	Partitions                []string `json:"partitions"`
	Port                      int      `json:"port"`
	RealMemory                int64    `json:"real_memory"`
	Reason                    string   `json:"reason"`
	ReasonChangedAt           int64    `json:"reason_changed_at"`
	ReasonSetByUser           *string  `json:"reason_set_by_user"`
	SlurmdStartTime           int64    `json:"slurmd_start_time"`
	Sockets                   int64    `json:"sockets"`
	Threads                   int      `json:"threads"`
	TemporaryDisk             int      `json:"temporary_disk"`
	Weight                    int      `json:"weight"`
	TRES                      string   `json:"tres"`
	SlurmdVersion             string   `json:"slurmd_version"`
	AllocMemory               int64    `json:"alloc_memory"`
	AllocCPUs                 int64    `json:"alloc_cpus"`
	IdleCPUs                  int64    `json:"idle_cpus"`
	TRESUsed                  *string  `json:"tres_used"`
	TRESWeighted              float64  `json:"tres_weighted"`
}

func nodeOf(n *slurm.Node) Node {
	base, flags := n.State, []string{}
	if state, rest, has := strings.Cut(n.State, "+"); has {
		base, flags = state, strings.Split(rest, "+")
	}
	if n.Silent {
		flags = append(flags, "NOT_RESPONDING")
	}
	out := Node{
		Architecture: cmp.Or(n.Arch, "x86_64"), Boards: 1, BootTime: unix(n.Boot), Cores: 1, FreeMemory: n.FreeMem, CPUs: n.CPUs, LastBusy: unix(n.Contact),
		Features: strings.Join(n.Features, ","), ActiveFeatures: strings.Join(n.Features, ","), Gres: n.Gres, GresDrained: "N/A", GresUsed: n.GresUsed,
		Name: n.Name, NextStateAfterReboot: "invalid", Address: n.Addr, Hostname: n.Host, State: strings.ToLower(base), StateFlags: flags,
		NextStateFlags: []string{}, OperatingSystem: cmp.Or(n.OS, "Linux"), Partitions: n.Partitions, RealMemory: n.MemMiB, Reason: n.Reason,
		SlurmdStartTime: unix(n.Registered), Sockets: n.CPUs, Threads: 1, Weight: 1, TRES: n.Configured(), SlurmdVersion: n.Version, AllocMemory: n.MemUsed,
		AllocCPUs: n.CPUsUsed, IdleCPUs: n.CPUs - n.CPUsUsed, TRESWeighted: float64(n.CPUsUsed),
	}
	if n.Reason != "" {
		out.ReasonChangedAt, out.ReasonSetByUser = unix(n.ReasonAt), &n.User
	}
	if used := n.Allocated(); used != "" {
		out.TRESUsed = &used
	}
	return out
}
