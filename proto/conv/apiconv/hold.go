package apiconv

import (
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// DependsFromAPI converts dependencies from users.
func DependsFromAPI(ms []*apiv1.Dependency) []cluster.Dependency {
	var out []cluster.Dependency
	for _, m := range ms {
		out = append(out, cluster.Dependency{
			Kind: cluster.DependKind(m.GetKind()), Job: cluster.JobID(m.GetJob()), OneTask: m.Task != nil, Task: m.GetTask(), Delay: m.GetDelay().AsDuration(),
		})
	}
	return out
}

// DependsToAPI converts back.
func DependsToAPI(ds []cluster.Dependency) []*apiv1.Dependency {
	var out []*apiv1.Dependency
	for _, d := range ds {
		m := &apiv1.Dependency{Kind: string(d.Kind), Job: uint64(d.Job), Delay: ToDuration(d.Delay)}
		if d.OneTask {
			m.Task = &d.Task
		}
		out = append(out, m)
	}
	return out
}
