package apiconv

import (
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func arrayFromAPI(s string) (*cluster.Array, error) {
	if s == "" {
		return nil, nil
	}
	return cluster.ParseArray(s)
}

func arrayToAPI(a *cluster.Array) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// taskToAPI sets which task of which array j is.
func taskToAPI(m *apiv1.Job, j *cluster.Job, throttle int) {
	if !j.InArray() {
		return
	}
	m.ArrayJobId, m.ArrayTaskId, m.ArrayCount = uint64(j.ArrayJobID), new(j.ArrayTaskID), uint32(j.Count())
	if j.Spec != nil && j.Spec.Array != nil {
		m.ArrayTasks, m.ArrayThrottle = j.TasksText(), uint32(throttle)
	}
}
