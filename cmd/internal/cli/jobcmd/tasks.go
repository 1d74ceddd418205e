package jobcmd

import (
	"fmt"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// taskLabel is a job, or tasks of an array, as they are typed.
func taskLabel(id uint64, tasks string) string {
	if tasks == "" {
		return fmt.Sprint(id)
	}
	return console.TaskRef{Array: id, Tasks: tasks}.String()
}

// taskCount says of how many tasks of an array something is true.
func taskCount(n uint32) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " (1 task)"
	}
	return fmt.Sprintf(" (%d tasks)", n)
}
