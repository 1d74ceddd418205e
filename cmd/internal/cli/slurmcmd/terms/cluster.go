package terms

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NoPartition is what Slurm's tables show if the cluster has no partitions.
const NoPartition = "all"

// slurmStates are the states with another name in Slurm: a job in the queue
// of a GPU is pending, one on a silent node counts as running.
var slurmStates = map[cluster.JobState][2]string{
	cluster.JobQueued: {"PENDING", "PD"}, cluster.JobStarting: {"CONFIGURING", "CF"}, cluster.JobUnreachable: {"RUNNING", "R"},
}

// Job returns a job in Slurm's terms, as of now.
func Job(v *Viewer, j *apiv1.Job) slurm.Job {
	now := v.now
	st, err := cluster.ParseJobState(j.GetState())
	long, code := j.GetState(), st.Code()
	if s, ok := slurmStates[st]; ok && err == nil {
		long, code = s[0], s[1]
	}
	s, spec := slurm.Job{
		ID: j.GetId(), Name: console.Escape(j.GetName()), User: console.Escape(j.GetUser()), UID: j.GetUid(), Partition: j.GetPartition(), State: long, Code: code,
		Reason: j.GetReason(), Nodes: int(max(1, j.GetNodesWanted())), NodeList: console.NodesOf(j), GPUs: int(j.GetGpusWanted()),
		Submitted: Local(j.GetSubmitted(), now), Eligible: Local(j.GetSubmitted(), now), Started: Local(j.GetStarted(), now), Ended: Local(j.GetEnded(), now),
		ExitCode: j.GetExitCode(), Signal: j.GetSignal(), Priority: slurm.FirstPriority - int64(cmp.Or(j.GetArrayJobId(), j.GetId())),
	}, j.GetSpec()
	s.Cluster, s.Times = option.ClusterName, v.times
	s.Account, s.QOS, s.Nice = j.GetAccount(), j.GetQos(), j.GetNice()
	s.InArray(j.GetArrayJobId(), client.TasksOf(j), j.GetArrayThrottle())
	s.GPUs *= s.Nodes // requested per node
	s.Tasked = int64(s.Nodes) * int64(max(1, j.GetTasksPerNode()))
	s.Reason = cmp.Or(s.Reason, "None")
	s.Partition = cmp.Or(s.Partition, NoPartition)
	if IsHeld(s.Reason) {
		s.Priority = 0
	}
	if n := len(j.GetAttempts()); n > 1 {
		s.Restarts = n - 1
	}
	if spec != nil {
		addSpec(v, &s, j, spec)
	}
	settle(&s, st.Waiting(), now)
	return s
}

func addSpec(v *Viewer, s *slurm.Job, j *apiv1.Job, spec *apiv1.JobSpec) {
	s.GID, s.Group = v.group(j.GetUid())
	now := v.now
	// Slurm counts cores and memory of all nodes, a spec those of one.
	nodes := int64(s.Nodes)
	cpu, mem := view.Host(j)
	s.MinCPUs = max(1, (cpu+999)/1000)
	s.CPUs = nodes * s.MinCPUs
	s.MinMemMiB, s.MemUsedMiB = mem, nodes*mem
	s.Limit, s.Comment, s.Dir = spec.GetTimeLimit().AsDuration(), console.Escape(spec.GetComment()), console.Escape(string(spec.GetDir()))
	s.Dependency = j.GetDependency()
	s.MailType, s.MailUser = spec.GetMailType(), cmp.Or(spec.GetMailUser(), j.GetUser())
	if b := spec.GetBegin(); b != nil {
		s.Eligible = Local(b, now)
	}
	w := spec.GetWhere()
	s.ReqNodes, s.Requeue = cmp.Or(spec.GetNode(), w.GetNodes()), spec.GetRequeueOnLoss()
	s.Features, s.Exclude, s.Reservation, s.Whole = console.Escape(w.GetFeatures()), console.Escape(w.GetExclude()), console.Escape(w.GetReservation()), w.GetWhole()
	if few, err := cluster.ParseSwitches(w.GetSwitches()); err == nil {
		s.Switches, s.SwitchWait = few.Most, few.Wait
	}
	if d := spec.GetDeadline(); d != nil {
		s.Deadline = Local(d, now)
	}
	if c := spec.GetCommand(); len(c) > 0 {
		s.Command = console.Escape(string(c[0]))
	}
	s.Gres = gresOf(spec.GetGpus(), spec.GetGpuType())
	if g := j.GetGpus(); len(g) > 0 {
		var at []string
		for _, x := range g {
			at = append(at, strconv.FormatUint(uint64(x.GetIndex()), 10))
		}
		s.GresUsed = fmt.Sprintf("gpu:%s:%d(IDX:%s)", g[0].GetType(), len(g), strings.Join(at, ","))
	}
	for _, f := range []struct {
		to   *string
		from []byte
	}{{&s.Stdout, spec.GetStdout()}, {&s.Stderr, spec.GetStderr()}, {&s.Stdin, spec.GetStdin()}} {
		if len(f.from) == 0 {
			continue
		}
		if path, err := view.OutputPath(j, string(f.from)); err == nil {
			*f.to = console.Escape(path)
		}
	}
	s.Stderr = cmp.Or(s.Stderr, s.Stdout)
}

// gresOf returns a job's requested GPUs in Slurm's words.
func gresOf(n uint32, gpuType string) string {
	switch {
	case n == 0:
		return ""
	case gpuType == "":
		return "gres:gpu:" + strconv.FormatUint(uint64(n), 10)
	}
	return fmt.Sprintf("gres:gpu:%s:%d", gpuType, n)
}

// Local returns a time in the zone of now, which is the viewer's; zero for none.
func Local(t *timestamppb.Timestamp, now time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime().In(now.Location())
}

// powerFlags are Slurm's flags for a node that is powered down, or on its way
// down or up.
var powerFlags = map[string]string{
	cluster.PoweredDown.String(): slurm.PoweredDown, cluster.PoweringDown.String(): slurm.PoweringDown, cluster.PoweringUp.String(): slurm.PoweringUp,
}

// Node returns a node in Slurm's terms.
func Node(v *Viewer, n *apiv1.Node) slurm.Node {
	now := v.now
	power := powerFlags[n.GetState()]
	up := n.GetState() == cluster.NodeReady.String() || power != ""
	cpus, used := n.GetCpuMilli()/1000, (n.GetCpuUsedMilli()+999)/1000
	s := slurm.Node{
		Times: v.times,
		Name:  n.GetId(), Addr: n.GetAddress(), Host: n.GetId(), State: slurm.StateOf(up, n.GetDrain(), min(used, cpus), cpus), Silent: !up,
		Reason: console.Escape(n.GetDrainReason()), User: "root", CPUs: cpus, CPUsUsed: min(used, cpus), MemMiB: n.GetMemMib(), MemUsed: n.GetMemUsedMib(),
		FreeMem: n.GetMemMib() - n.GetMemUsedMib(), Version: n.GetVersion(), Registered: Local(n.GetRegistered(), now), Contact: Local(n.GetLastContact(), now),
		Partitions: n.GetPartitions(),
	}
	if len(s.Partitions) == 0 {
		s.Partitions = []string{NoPartition}
	}
	s.Gres, s.GresUsed = slurmGres(n.GetGpus())
	for _, g := range n.GetGpus() {
		s.GPUs++
		if g.GetShares() > 0 {
			s.GPUsUsed++
		}
	}
	s.Features = n.GetFeatures()
	ordered(v, &s, n.GetHistory())
	if n.GetMaint() {
		s.State = slurm.InMaintenance(s.State)
	} else if n.GetReservation() != "" {
		s.State = slurm.InReservation(s.State)
	}
	s.State += power
	if s.Reason == "" && s.State != "IDLE" {
		s.Reason = console.Escape(n.GetPowerReason())
	}
	return s
}

// ordered sets who last drained a node, and when; for one that is down, when
// it was lost.
func ordered(v *Viewer, s *slurm.Node, history []*apiv1.NodeEvent) {
	for _, h := range slices.Backward(history) {
		switch {
		case h.GetGpu() != "":
		case h.GetKind() == cluster.EventResumed:
			return
		case h.GetKind() == cluster.EventDrained:
			s.ReasonAt = Local(h.GetAt(), v.now)
			if h.ByUid != nil {
				s.UserID, s.User = h.GetByUid(), v.user(h.GetByUid())
			}
			return
		}
	}
}

// user returns the viewer's name for a user, or the number.
func (v *Viewer) user(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := v.accounts.UserID(id); err == nil {
		return u.Username
	}
	return id
}

// slurmGres lists the GPUs of a node, by type in the order of their numbers,
// and which of them are in use.
func slurmGres(gpus []*apiv1.GPU) (all, used string) {
	var types []string
	count, busy := map[string]int{}, map[string][]string{}
	for _, g := range gpus {
		if !slices.Contains(types, g.GetType()) {
			types = append(types, g.GetType())
		}
		count[g.GetType()]++
		if g.GetShares() > 0 {
			busy[g.GetType()] = append(busy[g.GetType()], strconv.FormatUint(uint64(g.GetIndex()), 10))
		}
	}
	var a, u []string
	for _, t := range types {
		a = append(a, fmt.Sprintf("gpu:%s:%d", t, count[t]))
		at := cmp.Or(strings.Join(busy[t], ","), "N/A")
		u = append(u, fmt.Sprintf("gpu:%s:%d(IDX:%s)", t, len(busy[t]), at))
	}
	return strings.Join(a, ","), strings.Join(u, ",")
}

// Cluster reads nodes and partitions; a cluster without partitions has one
// of all nodes.
func Cluster(ctx context.Context, e *console.Env, c *client.Client) ([]slurm.Partition, []slurm.Node, error) {
	nodes, err := client.GetNodes(ctx, c, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := client.ListPartitions.Ask(ctx, c, client.Reads, &apiv1.ListPartitionsRequest{})
	if err != nil {
		return nil, nil, err
	}
	parts := resp.GetPartitions()
	out, v := make([]slurm.Node, len(nodes)), ViewFrom(e)
	all := slurm.Partition{Name: NoPartition, Default: true, Up: true}
	for i, n := range nodes {
		out[i] = Node(v, n)
		all.Nodes = append(all.Nodes, n.GetId())
	}
	if len(parts) == 0 {
		return []slurm.Partition{all}, out, nil
	}
	var ps []slurm.Partition
	for _, p := range parts {
		sp := slurm.Partition{Name: p.GetName(), Default: p.GetDefault(), Up: !p.GetDown(), MaxTime: p.GetMaxTime().AsDuration(), DefaultTime: p.GetDefaultTime().AsDuration(), Lent: int64(p.GetGpusLent())}
		for _, l := range p.GetAccess() {
			if to := map[string]*[]string{
				cluster.AllowGroups: &sp.AllowGroups, cluster.AllowAccounts: &sp.AllowAccounts, cluster.DenyAccounts: &sp.DenyAccounts,
				cluster.AllowQOS: &sp.AllowQOS, cluster.DenyQOS: &sp.DenyQOS,
			}[l.GetList()]; to != nil {
				*to = l.GetNames()
			}
		}
		for _, n := range nodes {
			if slices.Contains(n.GetPartitions(), p.GetName()) {
				sp.Nodes = append(sp.Nodes, n.GetId())
			}
		}
		ps = append(ps, sp)
	}
	return ps, out, nil
}

// States returns the states here that Slurm's states may be; nothing for all.
func States(states []string) (out []string) {
	for _, s := range states {
		switch st, err := cluster.ParseJobState(s); {
		case s == "CONFIGURING":
			out = append(out, cluster.JobStarting.String())
		case err != nil:
		case st == cluster.JobPending:
			out = append(out, st.String(), cluster.JobQueued.String())
		case st == cluster.JobRunning:
			out = append(out, st.String(), cluster.JobUnreachable.String())
		default:
			out = append(out, st.String())
		}
	}
	return out
}

// ErrJob is the message of Slurm's commands for a job that does not exist.
const ErrJob = option.Bare("slurm_load_jobs error: Invalid job id specified")

// Reservation returns a reservation in Slurm's terms.
func Reservation(r *apiv1.Reservation, now time.Time) slurm.Reservation {
	s := slurm.Reservation{
		Name: r.GetName(), Start: Local(r.GetStart(), now), End: Local(r.GetEnd(), now), Nodes: r.GetNodes(), NodeCount: int(r.GetNodeCount()),
		Cores: r.GetCpuMilli() / 1000, GPUs: int(r.GetGpuCount()), Features: r.GetFeatures(), Users: r.GetUsers(), Accounts: r.GetAccounts(), Active: r.GetActive(),
	}
	if r.GetMaint() {
		s.Flags = append(s.Flags, "MAINT")
	}
	switch r.GetRepeat() {
	case string(dispatch.RepeatDaily):
		s.Flags = append(s.Flags, "DAILY")
	case string(dispatch.RepeatWeekly):
		s.Flags = append(s.Flags, "WEEKLY")
	}
	if names, err := cluster.ParseHostList(r.GetNodes()); len(r.GetGpus()) == 0 && (err != nil || len(names.Names()) > 0) {
		s.Flags = append(s.Flags, "SPEC_NODES")
	}
	if r.GetNodes() == cluster.AllNodes {
		s.Flags = append(s.Flags, "SPEC_NODES", "ALL_NODES")
	}
	return s
}

// Status reads the state of the cluster.
func Status(ctx context.Context, c *client.Client) (st *apiv1.GetStatusResponse, err error) {
	st, err = client.GetStatus.Ask(ctx, c, client.Reads, &apiv1.GetStatusRequest{})
	return st, err
}
