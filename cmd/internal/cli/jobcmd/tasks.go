package jobcmd

import (
	"fmt"
	"strconv"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

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

// jobLabel is what people call a job: 17, 1234_7, or 1234_[8-99] for tasks that
// are listed as one, with %N where only so many may run at once, if asked for.
func jobLabel(j *apiv1.Job, throttle bool) string {
	if j.GetArrayJobId() == 0 {
		return strconv.FormatUint(j.GetId(), 10)
	}
	id := strconv.FormatUint(j.GetArrayJobId(), 10)
	if j.GetArrayCount() < 2 {
		return id + "_" + j.GetArrayTasks()
	}
	if n := j.GetArrayThrottle(); throttle && n > 0 && (j.GetState() == "PENDING" || j.GetState() == "QUEUED") {
		return fmt.Sprintf("%s_[%s%%%d]", id, j.GetArrayTasks(), n)
	}
	return id + "_[" + j.GetArrayTasks() + "]"
}

// isOf tells whether an id names a job, its array, or may name one of the tasks
// that are listed as one.
func isOf(j *apiv1.Job, id uint64) bool {
	return j.GetId() == id || j.GetArrayJobId() != 0 && (j.GetArrayJobId() == id || j.GetArrayCount() > 1 && id > j.GetArrayJobId() && id < j.GetId())
}
