package client

import (
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// ArrayTasks is tasks of arrays as requests hold them.
func ArrayTasks(refs []console.TaskRef) []*apiv1.ArrayTasks {
	var out []*apiv1.ArrayTasks
	for _, r := range refs {
		out = append(out, &apiv1.ArrayTasks{Array: r.Array, Tasks: r.Tasks})
	}
	return out
}
