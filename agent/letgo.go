package agent

import "github.com/berth-scheduler/berth/cluster"

// startWitness is a Runtime that can tell of a stopped task whether its first
// process was let go. A container runtime prepares that process and holds it
// back until the start; when it dies within the start, the process ends as a
// command could that failed, having done nothing.
type startWitness interface {
	// LetGo is false also when nobody knows.
	LetGo(id cluster.AttemptID) bool
}

// ran tells whether the runtime is sure that the first process of a task began.
func (t *task) ran() bool {
	w, ok := t.rt.(startWitness)
	return ok && w.LetGo(t.id)
}
