package conv

import (
	"slices"
	"sort"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/study"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// Bounds on an agent's description of its node.
const (
	maxGPUsPerNode  = 64
	maxRuntimes     = 8
	maxWord         = 64 // bytes of a short name
	maxNodeCPUMilli = 1 << 20
)

// NodeFromHello converts an agent's description of its node. Every GPU sells its
// memory less the driver's reserve and headroomMiB, to at most maxShares jobs.
// Errors are *cluster.Error of CodeInvalid.
func NodeFromHello(h *nodev1.Hello, headroomMiB int64, maxShares int) (*cluster.Node, error) {
	if err := cluster.CheckName("node", h.Node); err != nil {
		return nil, err
	}
	switch {
	case h.Protocol != 1:
		return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: agent speaks protocol %d, this coordinator 1; upgrade the older one", h.Node, h.Protocol)
	case h.BootId == "" || len(h.BootId) > 128:
		return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: boot id must have 1 to 128 bytes", h.Node)
	case len(h.Gpus) > maxGPUsPerNode:
		return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: %d GPUs, at most %d are allowed", h.Node, len(h.Gpus), maxGPUsPerNode)
	case h.CpuMilli <= 0 || h.CpuMilli > maxNodeCPUMilli || h.MemMib <= 0 || h.MemMib > 16*cluster.MaxMemMiB:
		return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: %d milli-cores and %d MiB are out of range", h.Node, h.CpuMilli, h.MemMib)
	case len(h.Runtimes) > maxRuntimes || len(h.Address) > 255 || len(h.Version) > 64 || len(h.BootId) > maxWord:
		return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: runtimes, address, version or boot id are too long", h.Node)
	case len(h.Driver) > maxWord || strings.ContainsFunc(h.Driver, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }):
		return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: the driver's version must be a word of at most %d bytes", h.Node, maxWord)
	case slices.ContainsFunc(h.Runtimes, func(r string) bool { return len(r) > maxWord }):
		return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: a runtime's name has more than %d bytes", h.Node, maxWord)
	}
	n := &cluster.Node{
		ID: cluster.NodeID(h.Node), Address: h.Address, BootID: h.BootId, State: cluster.NodeReady,
		CPUMilli: h.CpuMilli, MemMiB: h.MemMib, Runtimes: h.Runtimes, Version: h.Version,
		Problem: clip(h.Problem, maxStateReason), Credentials: h.Credentials, Driver: h.Driver,
	}
	var err error
	if n.Features, err = apiconv.Features(h.Node, h.Features); err != nil {
		return nil, err
	}
	for _, g := range h.Gpus {
		if g.Uuid == "" || len(g.Uuid) > 128 || g.Type == "" || len(g.Type) > 64 || g.MemMib <= 0 || g.MemMib > cluster.MaxMemMiB {
			return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: GPU %q of type %q with %d MiB is malformed", h.Node, g.Uuid, g.Type, g.MemMib)
		}
		if len(g.Pci) > maxWord || len(g.CapMode) > maxWord {
			return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: GPU %s: pci or cap_mode has more than %d bytes", h.Node, g.Uuid, maxWord)
		}
		scope, err := cluster.ParseScope(g.Scope)
		if err != nil {
			return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: GPU %s: %v", h.Node, g.Uuid, err)
		}
		state, why := gpuState(g)
		n.GPUs = append(n.GPUs, cluster.GPU{
			ID: cluster.GPUID(g.Uuid), Index: int(g.Index), Type: g.Type, MemMiB: g.MemMib,
			SellableMiB: sellable(g, headroomMiB), MaxShares: max(1, maxShares),
			NUMA: int(g.Numa), PCI: g.Pci, CapMode: g.CapMode, Scope: scope, CapReason: clip(g.CapReason, maxCapReason),
			State: state, StateReason: why,
		})
	}
	sort.Slice(n.GPUs, func(i, k int) bool { return n.GPUs[i].ID < n.GPUs[k].ID })
	for i := 1; i < len(n.GPUs); i++ {
		if n.GPUs[i].ID == n.GPUs[i-1].ID {
			return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: GPU %s appears twice", h.Node, n.GPUs[i].ID)
		}
	}
	return n, nil
}

// attemptStates maps the link's states to those of package cluster; LOST is settled
// by the state machine, which knows whether the job may be rerun.
var attemptStates = map[nodev1.AttemptState]cluster.JobState{
	nodev1.AttemptState_ATTEMPT_STATE_STARTING:      cluster.JobStarting,
	nodev1.AttemptState_ATTEMPT_STATE_RUNNING:       cluster.JobRunning,
	nodev1.AttemptState_ATTEMPT_STATE_COMPLETING:    cluster.JobCompleting,
	nodev1.AttemptState_ATTEMPT_STATE_COMPLETED:     cluster.JobCompleted,
	nodev1.AttemptState_ATTEMPT_STATE_FAILED:        cluster.JobFailed,
	nodev1.AttemptState_ATTEMPT_STATE_CANCELLED:     cluster.JobCancelled,
	nodev1.AttemptState_ATTEMPT_STATE_TIMEOUT:       cluster.JobTimeout,
	nodev1.AttemptState_ATTEMPT_STATE_OUT_OF_MEMORY: cluster.JobOutOfMemory,
	nodev1.AttemptState_ATTEMPT_STATE_LOST:          cluster.JobNodeFail,
	nodev1.AttemptState_ATTEMPT_STATE_PREEMPTED:     cluster.JobPreempted,
}

const maxDetail = 512

// ReportToLog returns the command that records a node's report on an attempt. An
// unknown state becomes 0, which the state machine refuses.
func ReportToLog(node cluster.NodeID, r *nodev1.Report) *logv1.ReportAttempt {
	out := &logv1.ReportAttempt{
		Node: string(node), Job: r.Job, Attempt: r.Attempt, Token: r.Token,
		State: uint32(attemptStates[r.State]),
	}
	if r.Reason != "" || r.Detail != "" {
		out.Reason = &logv1.Reason{Code: clip(r.Reason, 32), Detail: clip(r.Detail, maxDetail)}
	}
	if r.Exit != nil {
		out.Exit = &logv1.Exit{Code: r.Exit.Code, Signal: r.Exit.Signal}
	}
	if t := r.Started; t != nil {
		out.StartedUs = int64(cluster.TimeOf(t.AsTime()))
	}
	if t := r.Ended; t != nil {
		out.EndedUs = int64(cluster.TimeOf(t.AsTime()))
	}
	out.Ready = r.Ready
	for _, p := range r.Power {
		out.Power = append(out.Power, &logv1.CardPower{Gpu: p.Uuid, CapW: p.CapW, ClockMhz: p.ClockMhz, Why: clip(p.Why, cluster.MaxPowerWhy)})
	}
	out.Search = CapSearchToLog(CapSearchFromNode(r.Search))
	if out.Search != nil {
		out.Search.Why = clip(out.Search.Why, cluster.MaxPowerWhy)
	}
	if u := r.Usage; u != nil {
		out.Usage = &logv1.Usage{
			GpuMemPeakMib: u.GpuMemPeakMib, Milli: u.GpuMilli, HostMemPeakMib: u.HostMemPeakMib,
			CpuMilli: u.CpuMilli, GpuOom: u.GpuOom, DurationUs: max(0, out.EndedUs-out.StartedUs),
			PowerW: u.PowerW, Steps: u.Steps, Profile: reportedProfile(u.Profile),
		}
		if out.StartedUs == 0 {
			out.Usage.DurationUs = 0
		}
	}
	return out
}

// clip cuts s to n bytes, never within a character.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}

// AttemptOf returns the attempt that a message of the agents' link is about; no
// attempt for a nil message.
func AttemptOf(m interface {
	GetJob() uint64
	GetAttempt() uint32
}) cluster.AttemptID {
	return cluster.AttemptID{Job: cluster.JobID(m.GetJob()), No: m.GetAttempt()}
}

// Assignment returns the message that tells an agent to run its part of attempt a
// of j: that of the node at rank.
func Assignment(j *cluster.Job, a *cluster.Attempt, rank int) *nodev1.Assignment {
	s, b := j.Spec, a.BerthAt(rank)
	env, script := slurmPartition(s)
	command := s.Command
	as := &nodev1.Assignment{
		Job: uint64(j.ID), Attempt: a.No, Token: uint64(a.TokenOf(rank)),
		Uid: uint32(j.Owner.UID), Gid: j.Owner.GID, User: j.Owner.Name, Name: s.Name,
		Dir: []byte(s.Dir), Image: s.Image,
		Stdin: []byte(s.Stdin), Stdout: []byte(s.Stdout), Stderr: []byte(s.Stderr),
		CpuMilli: b.CPUMilli, WeighCores: j.Spec.CPUMilli == 0, MemMib: b.MemMiB, Script: script,
		Warning: warningToNode(s.Warning), Truncate: s.Truncate, Container: containerToNode(&s.Container), Partition: s.Partition,
		Credential: a.Credential(j, b.Node), Data: s.Data,
	}
	switch {
	case a.Preempt == nil && a.Stays(rank):
	case !s.Checkpoint.Set(): // requeued: TERM, the agent's grace, KILL
		as.Preempt = &nodev1.Preempt{Signal: "TERM", Grace: durationpb.New(0)}
	default:
		as.Preempt = &nodev1.Preempt{Signal: s.Checkpoint.Signal, Grace: durationpb.New(s.Checkpoint.Grace.Round(time.Microsecond))}
	}
	if s.TimeLimit > 0 {
		as.TimeLimit = durationpb.New(s.TimeLimit.Round(time.Microsecond))
	}
	if s.Study != nil {
		as.Metric, as.MetricMaximize = s.Study.Metric, s.Study.Maximize
	}
	if s.Study.Searches() && j.InArray() {
		params := s.Study.ParamsAfter(j.ArrayTaskID, j.Copy())
		command, env = study.Fill(command, params), slices.Concat(env, paramEnv(params), trialEnv(j))
	}
	if s.Service != nil {
		command, env = service.Fill(command, a.Port), slices.Concat(env, replica(as, j, a))
	}
	as.Command, as.Env = apiconv.Texts[[]byte](command), apiconv.Texts[[]byte](env)
	as.Ranks, as.Array = ranks(s, a, rank), arrayTask(j)
	for i, g := range b.GPUs {
		as.Gpus = append(as.Gpus, &nodev1.Share{
			Uuid: string(g.GPU), MemMib: g.Share.MemMiB, Milli: cluster.BusyMilli(s, g.Share, &a.Estimate), Exclusive: g.Share.Exclusive, GrantedMib: apiconv.Granted(a, i),
		})
	}
	return as
}
