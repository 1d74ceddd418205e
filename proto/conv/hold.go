package conv

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func dependsToLog(ds []cluster.Dependency) []*logv1.Dependency {
	var out []*logv1.Dependency
	for _, d := range ds {
		out = append(out, &logv1.Dependency{Kind: string(d.Kind), Job: uint64(d.Job), OneTask: d.OneTask, Task: d.Task, DelayUs: d.Delay.Microseconds()})
	}
	return out
}

func dependsFromLog(ms []*logv1.Dependency) []cluster.Dependency {
	var out []cluster.Dependency
	for _, m := range ms {
		out = append(out, cluster.Dependency{Kind: cluster.DependKind(m.GetKind()), Job: cluster.JobID(m.GetJob()), OneTask: m.GetOneTask(), Task: m.GetTask(), Delay: us(m.GetDelayUs())})
	}
	return out
}

// holdToLog sets what keeps j from starting.
func holdToLog(m *logv1.Job, j *cluster.Job) {
	if h := j.Hold; h != nil {
		m.Hold = &logv1.Hold{AtUs: int64(h.At), By: uint32(h.By), Admin: h.Admin}
	}
	m.DependAtUs = int64(j.DependAt)
	for _, s := range j.Depends {
		m.Depend = append(m.Depend, uint32(s))
	}
}

// holdFromLog converts back.
func holdFromLog(j *cluster.Job, m *logv1.Job) error {
	if h := m.GetHold(); h != nil {
		j.Hold = &cluster.Hold{At: cluster.Time(h.GetAtUs()), By: cluster.UID(h.GetBy()), Admin: h.GetAdmin()}
	}
	// Jobs whose dependencies were cleared before entries of version 11 kept these
	// states; they are read as they are, so that the state's hash stays the same.
	if len(m.GetDepend()) != len(j.Spec.Depends) && len(j.Spec.Depends) > 0 {
		return fmt.Errorf("job %d: %d states of %d dependencies", j.ID, len(m.GetDepend()), len(j.Spec.Depends))
	}
	j.DependAt = cluster.Time(m.GetDependAtUs())
	for _, s := range m.GetDepend() {
		if s > uint32(cluster.DependFailed) {
			return fmt.Errorf("job %d: dependency in state %d", j.ID, s)
		}
		j.Depends = append(j.Depends, cluster.DependState(s))
	}
	return nil
}

func preemptRequestToLog(p *cluster.PreemptRequest) *logv1.PreemptRequest {
	return &logv1.PreemptRequest{
		AtUs: int64(p.At), For: uint64(p.For), Why: p.Why, Requeue: p.Requeue, Hold: p.Hold, By: uint32(p.By), Admin: p.Admin, Copy: CopyToLog(p.Copy),
	}
}

func preemptRequestFromLog(m *logv1.PreemptRequest) *cluster.PreemptRequest {
	return &cluster.PreemptRequest{
		At: cluster.Time(m.GetAtUs()), For: cluster.JobID(m.GetFor()), Why: m.GetWhy(),
		Requeue: m.GetRequeue(), Hold: m.GetHold(), By: cluster.UID(m.GetBy()), Admin: m.GetAdmin(), Copy: CopyFromLog(m.GetCopy()),
	}
}
