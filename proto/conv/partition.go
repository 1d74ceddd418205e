package conv

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// PartitionToLog converts a partition.
func PartitionToLog(p *cluster.Partition) *logv1.Partition {
	return &logv1.Partition{
		Name: p.Name, Revision: p.Revision, Nodes: p.Nodes.String(), GpuTypes: p.GPUTypes, Default: p.Default,
		MaxTimeUs: p.MaxTime.Microseconds(), DefaultTimeUs: p.DefaultTime.Microseconds(), Down: p.Down,
		Networks: apiconv.Texts[string](p.Networks), Idle: p.Idle.String(), Access: accessToLog(p.Access), SessionIdleUs: p.SessionIdle.Microseconds(),
		Host: hostToLog(p.Host), Resize: string(p.Resize), MaxGpus: p.MaxGPUs, Preempt: string(p.Preempt), PowerCap: string(p.Power.Cap), GpuFreq: string(p.Power.Freq),
		LendTo: p.Lend.To, LendShortUs: p.Lend.Short.Microseconds(),
	}
}

func hostToLog(t cluster.HostTerms) *logv1.HostTerms {
	if t == (cluster.HostTerms{}) {
		return nil
	}
	return &logv1.HostTerms{MemPerGpuMib: t.MemPerGPUMiB, CpuPerGpuMilli: t.CPUPerGPUMilli, LeastMemMib: t.LeastMemMiB, LeastCpuMilli: t.LeastCPUMilli}
}

func hostFromLog(m *logv1.HostTerms) cluster.HostTerms {
	return cluster.HostTerms{
		MemPerGPUMiB: m.GetMemPerGpuMib(), CPUPerGPUMilli: m.GetCpuPerGpuMilli(), LeastMemMiB: m.GetLeastMemMib(), LeastCPUMilli: m.GetLeastCpuMilli(),
	}
}

func accessToLog(a cluster.Access) (out []*logv1.AccessList) {
	for _, list := range cluster.AccessLists() {
		if len(a[list]) > 0 {
			out = append(out, &logv1.AccessList{List: list, Names: a[list]})
		}
	}
	return out
}

// accessFrom converts back; unknown lists are left to Access.Check.
func accessFrom[L interface {
	GetList() string
	GetNames() []string
}](in []L) cluster.Access {
	var out cluster.Access
	for _, l := range in {
		out = out.With(l.GetList(), l.GetNames())
	}
	return out
}

// PartitionFromLog converts back. A partition that Partition.Check refuses is an
// error.
func PartitionFromLog(m *logv1.Partition) (*cluster.Partition, error) {
	nodes, err := cluster.ParseHostList(m.GetNodes())
	if err != nil {
		return nil, err
	}
	p := &cluster.Partition{
		Name: m.GetName(), Revision: m.GetRevision(), Nodes: nodes, GPUTypes: m.GetGpuTypes(), Default: m.GetDefault(),
		MaxTime: us(m.GetMaxTimeUs()), DefaultTime: us(m.GetDefaultTimeUs()), Down: m.GetDown(),
		Networks: apiconv.Texts[cluster.Network](m.GetNetworks()), Access: accessFrom(m.GetAccess()), SessionIdle: us(m.GetSessionIdleUs()),
		Host: hostFromLog(m.GetHost()), Resize: cluster.ResizeMode(m.GetResize()), MaxGPUs: m.GetMaxGpus(), Preempt: cluster.PreemptMode(m.GetPreempt()),
		Power: apiconv.PowerFrom(m), Lend: cluster.Lending{To: m.GetLendTo(), Short: us(m.GetLendShortUs())},
	}
	if p.Idle, err = cluster.ParseIdlePolicy(m.GetIdle()); err != nil {
		return nil, err
	}
	return p, p.Check()
}

// PartitionToAPI converts a partition for users; the caller adds its current use
// and the policy.
func PartitionToAPI(p *cluster.Partition) *apiv1.Partition {
	m := &apiv1.Partition{Name: p.Name, Nodes: p.Nodes.String(), GpuTypes: p.GPUTypes, Default: p.Default, Down: p.Down, Networks: apiconv.Texts[string](p.Networks), Idle: p.Idle.String(), Resize: string(p.Resize), MaxGpus: p.MaxGPUs, Preempt: string(p.Preempt), PowerCap: string(p.Power.Cap), GpuFreq: string(p.Power.Freq)}
	for _, list := range cluster.AccessLists() {
		if len(p.Access[list]) > 0 {
			m.Access = append(m.Access, &apiv1.AccessList{List: list, Names: p.Access[list]})
		}
	}
	if h := p.Host; h != (cluster.HostTerms{}) {
		m.Host = &apiv1.HostTerms{MemPerGpuMib: h.MemPerGPUMiB, CpuPerGpuMilli: h.CPUPerGPUMilli, LeastMemMib: h.LeastMemMiB, LeastCpuMilli: h.LeastCPUMilli}
	}
	if p.MaxTime > 0 {
		m.MaxTime = durationpb.New(p.MaxTime)
	}
	if m.LendTo = p.Lend.To; p.Lend.Short > 0 {
		m.LendShort = durationpb.New(p.Lend.Short)
	}
	if p.SessionIdle > 0 {
		m.SessionIdle = durationpb.New(p.SessionIdle)
	}
	if p.DefaultTime > 0 {
		m.DefaultTime = durationpb.New(p.DefaultTime)
	}
	return m
}

const slurmPartitionVar = "SLURM_JOB_PARTITION="

// slurmPartition returns the environment and the script of a job. A batch script is
// told its partition as Slurm would, even if the cluster chose it.
func slurmPartition(s *cluster.Spec) (env []string, script []byte) {
	env, script = s.Large()
	if len(script) == 0 || s.Partition == "" {
		return env, script
	}
	env = slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, slurmPartitionVar) })
	return append(env, slurmPartitionVar+s.Partition), script
}
