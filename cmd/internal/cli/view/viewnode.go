package view

import (
	"time"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

type nodeView struct {
	ID           string      `json:"id"`
	Address      string      `json:"address"`
	State        string      `json:"state"`
	Drain        bool        `json:"drain"`
	DrainReason  string      `json:"drain_reason"`
	DrainFrom    *time.Time  `json:"drain_from"`
	DrainUntil   *time.Time  `json:"drain_until"`
	CPUMilli     int64       `json:"cpu_milli"`
	CPUUsedMilli int64       `json:"cpu_used_milli"`
	MemMiB       int64       `json:"mem_mib"`
	MemUsedMiB   int64       `json:"mem_used_mib"`
	GPUs         []GpuView   `json:"gpus"`
	Runtimes     []string    `json:"runtimes"`
	Images       uint32      `json:"images"`
	Version      string      `json:"version"`
	BootID       string      `json:"boot_id"`
	Registered   *time.Time  `json:"registered"`
	LastContact  *time.Time  `json:"last_contact"`
	Jobs         []uint64    `json:"jobs"`
	Gossip       string      `json:"gossip"`
	GossipHeard  *time.Time  `json:"gossip_heard"`
	CutOff       string      `json:"cut_off"`
	Partitions   []string    `json:"partitions"`
	Problem      string      `json:"problem"`
	History      []eventView `json:"history"`
}

// eventView has no gpu for an event of the whole node, and no by_uid for one
// that nobody requested.
type eventView struct {
	At     *time.Time `json:"at"`
	GPU    string     `json:"gpu"`
	Kind   string     `json:"kind"`
	Detail string     `json:"detail"`
	ByUID  *uint32    `json:"by_uid"`
}

// GpuView has -1 for values that were not measured.
type GpuView struct {
	UUID              string      `json:"uuid"`
	Index             uint32      `json:"index"`
	Type              string      `json:"type"`
	MemMiB            int64       `json:"mem_mib"`
	SellableMiB       int64       `json:"sellable_mib"`
	LedgerUsedMiB     int64       `json:"ledger_used_mib"`
	LedgerUsedMilli   int64       `json:"ledger_used_milli"`
	Shares            uint32      `json:"shares"`
	MaxShares         uint32      `json:"max_shares"`
	Exclusive         bool        `json:"exclusive"`
	CapMode           string      `json:"cap_mode"`
	Scope             string      `json:"scope"`
	CapReason         string      `json:"cap_reason"`
	MeasuredUsedMiB   int64       `json:"measured_used_mib"`
	MeasuredUtilMilli int64       `json:"measured_util_milli"`
	GossipFreeMiB     int64       `json:"gossip_free_mib"`
	GossipStrayMiB    int64       `json:"gossip_stray_mib"`
	Queued            uint32      `json:"queued"`
	Jobs              []uint64    `json:"jobs"`
	BusyMS            int64       `json:"busy_ms"`
	BusySince         *time.Time  `json:"busy_since"`
	State             string      `json:"state"`
	StateReason       string      `json:"state_reason"`
	Drain             bool        `json:"drain"`
	DrainReason       string      `json:"drain_reason"`
	SharingOff        string      `json:"sharing_off"`
	Detail            *detailView `json:"detail"`
}

// Nodes returns the views of nodes.
func Nodes(in []*apiv1.Node) []nodeView {
	out := []nodeView{}
	for _, n := range in {
		v := nodeView{
			ID: n.GetId(), Address: n.GetAddress(), State: n.GetState(), Drain: n.GetDrain(), DrainReason: n.GetDrainReason(),
			DrainFrom: Stamp(n.GetDrainFrom()), DrainUntil: Stamp(n.GetDrainUntil()),
			CPUMilli: n.GetCpuMilli(), CPUUsedMilli: n.GetCpuUsedMilli(), MemMiB: n.GetMemMib(), MemUsedMiB: n.GetMemUsedMib(),
			GPUs: []GpuView{}, Runtimes: append([]string{}, n.GetRuntimes()...), Version: n.GetVersion(), BootID: n.GetBootId(),
			Registered: Stamp(n.GetRegistered()), LastContact: Stamp(n.GetLastContact()), Jobs: list(n.GetJobs()), Images: n.GetImages(), Gossip: n.GetGossip(),
			GossipHeard: Stamp(n.GetGossipHeard()), CutOff: n.GetCutOff(),
			Partitions: append([]string{}, n.GetPartitions()...), Problem: n.GetProblem(), History: []eventView{},
		}
		for _, h := range n.GetHistory() {
			v.History = append(v.History, eventView{At: Stamp(h.GetAt()), GPU: h.GetGpu(), Kind: h.GetKind(), Detail: h.GetDetail(), ByUID: h.ByUid})
		}
		for _, g := range n.GetGpus() {
			v.GPUs = append(v.GPUs, GpuView{
				UUID: g.GetUuid(), Index: g.GetIndex(), Type: g.GetType(), MemMiB: g.GetMemMib(), SellableMiB: g.GetSellableMib(),
				LedgerUsedMiB: g.GetLedgerUsedMib(), LedgerUsedMilli: g.GetLedgerUsedMilli(), Shares: g.GetShares(), MaxShares: g.GetMaxShares(),
				Exclusive: g.GetExclusive(), CapMode: g.GetCapMode(), Scope: g.GetScope(), CapReason: g.GetCapReason(), MeasuredUsedMiB: g.GetMeasuredUsedMib(), MeasuredUtilMilli: g.GetMeasuredUtilMilli(),
				GossipFreeMiB: g.GetGossipFreeMib(), GossipStrayMiB: g.GetGossipStrayMib(), Queued: g.GetQueued(), Jobs: list(g.GetJobs()), BusyMS: g.GetBusyMs(), BusySince: Stamp(g.GetBusySince()),
				State: g.GetState(), StateReason: g.GetStateReason(), Drain: g.GetDrain(), DrainReason: g.GetDrainReason(), SharingOff: g.GetSharingOff(),
				Detail: viewDetail(g.GetDetail()),
			})
		}
		out = append(out, v)
	}
	return out
}

type statusView struct {
	ClusterID  string         `json:"cluster_id"`
	Name       string         `json:"name"`
	Members    []memberView   `json:"members"`
	Jobs       []jobCountView `json:"jobs"`
	Index      uint64         `json:"index"`
	AnsweredBy string         `json:"answered_by"`
}

type memberView struct {
	ID             string `json:"id"`
	Address        string `json:"address"`
	Leader         bool   `json:"leader"`
	Voter          bool   `json:"voter"`
	Reachable      bool   `json:"reachable"`
	Term           uint64 `json:"term"`
	LastIndex      uint64 `json:"last_index"`
	AppliedIndex   uint64 `json:"applied_index"`
	StateHash      string `json:"state_hash"`
	StateHashIndex uint64 `json:"state_hash_index"`
	PID            uint32 `json:"pid"`
	Version        string `json:"version"`
	ModelVersion   uint64 `json:"model_version"`
	ModelSHA256    string `json:"model_sha256"`
	HistoryJobs    uint64 `json:"history_jobs"`
	HistoryBytes   uint64 `json:"history_bytes"`
	HistoryHoles   uint32 `json:"history_holes"`
	HistoryProblem string `json:"history_problem"`
	DiskFree       uint64 `json:"disk_free_bytes"`
	DiskSize       uint64 `json:"disk_size_bytes"`
	DiskProblem    string `json:"disk_problem"`
}

type jobCountView struct {
	State string `json:"state"`
	Count uint32 `json:"count"`
}

// Status returns the view of the cluster.
func Status(s *apiv1.GetStatusResponse) statusView {
	v := statusView{
		ClusterID: s.GetClusterId(), Name: s.GetName(), Members: []memberView{}, Jobs: []jobCountView{},
		Index: s.GetIndex(), AnsweredBy: s.GetAnsweredBy(),
	}
	for _, m := range s.GetMembers() {
		v.Members = append(v.Members, memberView{
			ID: m.GetId(), Address: m.GetAddress(), Leader: m.GetLeader(), Voter: m.GetVoter(), Reachable: m.GetReachable(),
			Term: m.GetTerm(), LastIndex: m.GetLastIndex(), AppliedIndex: m.GetAppliedIndex(),
			StateHash: m.GetStateHash(), StateHashIndex: m.GetStateHashIndex(), PID: m.GetPid(), Version: m.GetVersion(),
			ModelVersion: m.GetModelVersion(), ModelSHA256: m.GetModelSha256(),
			HistoryJobs: m.GetHistoryJobs(), HistoryBytes: m.GetHistoryBytes(), HistoryHoles: m.GetHistoryHoles(), HistoryProblem: m.GetHistoryProblem(),
			DiskFree: m.GetDiskFree(), DiskSize: m.GetDiskSize(), DiskProblem: m.GetDiskProblem(),
		})
	}
	for _, j := range s.GetJobs() {
		v.Jobs = append(v.Jobs, jobCountView{j.GetState(), j.GetCount()})
	}
	return v
}
