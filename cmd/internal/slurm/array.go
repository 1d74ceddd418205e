package slurm

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// InArray makes j tasks of an array, at most throttle of which run at once; 0
// means any number. Several waiting tasks are one job, such as 8-99 of 4.
func (j *Job) InArray(array uint64, tasks string, throttle uint32) {
	if array == 0 {
		return
	}
	j.ArrayID, j.Tasks, j.Throttle = array, tasks, throttle
	if !j.Folds() {
		j.Array = fmt.Sprintf("%d_%s", array, tasks)
		return
	}
	j.Array = fmt.Sprintf("%d_[%s]", array, j.Listed())
}

// Narrow limits j to some of the tasks that it stands for. Slurm then does
// not say how many of them may run at once.
func (j *Job) Narrow(tasks string) {
	j.part = true
	j.InArray(j.ArrayID, tasks, j.Throttle)
}

// Folds reports whether j stands for several tasks of its array.
func (j *Job) Folds() bool { return j.ArrayID != 0 && strings.ContainsAny(j.Tasks, "-,:") }

// mostListed is how many characters of a task list Slurm shows.
const mostListed = 63

// Listed returns its tasks as Slurm shows them.
func (j *Job) Listed() string {
	s := j.Tasks
	if !j.Folds() {
		return s
	}
	if len(s) > mostListed {
		s = s[:mostListed-3] + "..."
	}
	if j.Throttle > 0 && !j.part {
		s += "%" + strconv.FormatUint(uint64(j.Throttle), 10)
	}
	return s
}

// Masters gives tasks that have not begun the id of their array, as Slurm
// does: a task has an id of its own once it starts, and so does one that
// waits apart from the others of its array.
func Masters(jobs []Job) {
	lone := map[uint64]int{} // by array, the only entry that waits; -1 for none
	for i := range jobs {
		j := &jobs[i]
		switch _, more := lone[j.ArrayID]; {
		case j.ArrayID == 0 || !j.waiting() || j.Begun:
		case j.Folds():
			j.ID, lone[j.ArrayID] = j.ArrayID, -1
		case more:
			lone[j.ArrayID] = -1
		default:
			lone[j.ArrayID] = i
		}
	}
	for array, i := range lone {
		if i >= 0 {
			jobs[i].ID = array
		}
	}
}

// byArray is the order of squeue -S i: by array, then by task, with several
// waiting tasks last.
func byArray(a, b *Job) int {
	task := func(j *Job) uint64 {
		n, err := strconv.ParseUint(j.Tasks, 10, 64)
		if err != nil {
			return 1 << 32 // above all tasks
		}
		return n
	}
	return cmp.Or(cmp.Compare(cmp.Or(a.ArrayID, a.ID), cmp.Or(b.ArrayID, b.ID)), cmp.Compare(task(a), task(b)))
}
