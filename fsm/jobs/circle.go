package jobs

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// mostInCircle bounds how many jobs are looked at for one that waits for itself.
const mostInCircle = 4096

// Circular refuses dependencies of j, which is not stored yet and not of an array,
// with which it would wait for itself: directly, or because a job that it waits for
// waits for it. Jobs for which one of several dependencies is enough, and
// singletons, are not followed.
func (p *Depends) Circular(j *cluster.Job) *cluster.Error {
	seen := map[cluster.JobID]bool{j.ID: true}
	for i, d := range j.Spec.Depends {
		if j.Spec.DependAny || d.Kind == cluster.Singleton || j.Depends[i] != cluster.DependOpen {
			continue
		}
		next := p.awaited(d)
		for len(next) > 0 && len(seen) <= mostInCircle {
			on := next[len(next)-1]
			next = next[:len(next)-1]
			switch {
			case on.ID == j.ID && d.Job == j.ID:
				return cluster.Errorf(cluster.CodeInvalid, "dependency %s: job %d would wait for itself", d, j.ID)
			case on.ID == j.ID:
				return cluster.Errorf(cluster.CodeInvalid, "dependency %s: job %d waits for job %d, directly or through others, so neither would ever start", d, d.Job, j.ID)
			case seen[on.ID] || !on.State.Waiting() || on.Spec.DependAny:
				continue
			}
			seen[on.ID] = true
			for k, of := range on.Spec.Depends {
				if of.Kind != cluster.Singleton && k < len(on.Depends) && on.Depends[k] == cluster.DependOpen {
					next = append(next, p.awaited(of)...)
				}
			}
		}
	}
	return nil
}

// awaited returns the jobs that a dependency is on, those of an array folded.
func (p *Depends) awaited(d cluster.Dependency) []*cluster.Job {
	key, ok := p.keyFor(d)
	switch {
	case !ok:
		return nil
	case key.Array:
		a := p.roll.Arrays[key.Job]
		return p.roll.Overlapping(a, a.Spec.Array.Tasks.All())
	}
	return slices.DeleteFunc([]*cluster.Job{p.roll.Job(key.Job)}, func(j *cluster.Job) bool { return j == nil })
}
