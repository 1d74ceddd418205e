package jobcmd

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// taskCount formats a number of tasks of an array.
func taskCount(n uint32) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " (1 task)"
	}
	return fmt.Sprintf(" (%d tasks)", n)
}

// jobLabel is client.JobLabel with %N if only N of the tasks may run at once.
func jobLabel(j *apiv1.Job) string {
	label, list := strings.CutSuffix(client.JobLabel(j), "]")
	if !list {
		return label
	}
	if n := j.GetArrayThrottle(); n > 0 && console.Waiting(j.GetState()) {
		return fmt.Sprintf("%s%%%d]", label, n)
	}
	return label + "]"
}

// cardsOf is console.CardsOf; for tasks that are listed as one it gives only
// numbers and types.
func cardsOf(j *apiv1.Job) string {
	if j.GetArrayCount() < 2 || len(j.GetGpus()) == 0 {
		return console.CardsOf(j)
	}
	count := map[string]int{}
	for _, g := range j.GetGpus() {
		count[g.GetType()]++
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d×%s", count[name], name))
	}
	return strings.Join(parts, ",")
}

// arrayText describes the whole array of which one task is shown.
func arrayText(a *apiv1.ArrayInfo) string {
	if a == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", console.Plural(int(a.GetSize()), "task", "tasks"), clip(a.GetTasks()))
}

func tasksText(j *apiv1.Job) string {
	if j.GetArray() == nil {
		return ""
	}
	text := client.TaskStates(j.GetArray())
	if n := j.GetArrayThrottle(); n > 0 {
		text += fmt.Sprintf("; at most %d at once", n)
	}
	return text
}

// numbered returns the label of a job, with its id if that differs.
func numbered(j *apiv1.Job) string {
	if j.GetArrayJobId() == 0 {
		return client.JobLabel(j)
	}
	return fmt.Sprintf("%s (job %d)", client.JobLabel(j), j.GetId())
}

// clip shortens a list of tasks for display.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
