package terms

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// ParseJobs reads the jobs to show: ids, and tasks of arrays as 12_3 and
// 12_[3-9]. A step counts as its job.
func ParseJobs(list string) (ids []uint64, tasks []console.TaskRef, err error) {
	for _, s := range console.SplitOutside(strings.Join(strings.Fields(list), ",")) {
		if s == "" {
			continue
		}
		job, _, _ := strings.Cut(s, ".")
		more, of, err := console.ParseJobs([]string{job})
		if err != nil {
			//lint:ignore ST1005 these are Slurm's words
			return nil, nil, fmt.Errorf("Invalid job id: %s", s)
		}
		ids, tasks = append(ids, more...), append(tasks, of...)
	}
	return ids, tasks, nil
}

// IDs returns the ids under which a coordinator lists jobs and tasks.
func IDs(ids []uint64, tasks []console.TaskRef) []uint64 {
	out := slices.Clone(ids)
	for _, t := range tasks {
		if !slices.Contains(out, t.Array) {
			out = append(out, t.Array)
		}
	}
	return out
}

// OnlyTasks reduces arrays that were listed for some tasks to those tasks;
// of several that wait as one job it keeps those named.
func OnlyTasks(jobs []slurm.Job, ids []uint64, refs []console.TaskRef) ([]slurm.Job, error) {
	if len(refs) == 0 {
		return jobs, nil
	}
	named := map[uint64][]cluster.Tasks{}
	for _, r := range refs {
		t, err := cluster.ParseTasks(r.Tasks)
		if err != nil {
			return nil, err
		}
		named[r.Array] = append(named[r.Array], t)
	}
	var out []slurm.Job
	for i := range jobs {
		j := &jobs[i]
		among := named[j.ArrayID]
		if len(among) == 0 || slices.Contains(ids, j.ID) || slices.Contains(ids, j.ArrayID) {
			out = append(out, *j)
			continue
		}
		has, err := cluster.ParseTasks(j.Tasks)
		if err != nil {
			return nil, fmt.Errorf("tasks of job %d: %w", j.ArrayID, err)
		}
		both := common(has, among)
		if both.Len() == 0 {
			continue
		}
		one := *j
		if j.Folds() {
			one.ID = j.ArrayID
			one.Narrow(both.String())
		}
		out = append(out, one)
	}
	return out, nil
}

// common returns the intersection of a set of tasks with the union of others.
func common(has cluster.Tasks, among []cluster.Tasks) cluster.Tasks {
	var runs []cluster.TaskRun
	for k := range has.Len() {
		n := has.At(k)
		if slices.ContainsFunc(among, func(t cluster.Tasks) bool { _, in := t.Rank(n); return in }) {
			runs = append(runs, cluster.TaskRun{First: n, Last: n, Step: 1})
		}
	}
	out, _ := cluster.NewTasks(runs) // these tasks exist
	return out
}

// Unfolded returns a job for each waiting task of an array.
func Unfolded(jobs []slurm.Job) ([]slurm.Job, error) {
	out := make([]slurm.Job, 0, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		if !j.Folds() {
			out = append(out, *j)
			continue
		}
		tasks, err := cluster.ParseTasks(j.Tasks)
		if err != nil {
			return nil, fmt.Errorf("tasks of job %d: %w", j.ArrayID, err)
		}
		for k := range tasks.Len() {
			one := *j
			one.ID = j.ArrayID
			one.InArray(j.ArrayID, strconv.FormatUint(uint64(tasks.At(k)), 10), j.Throttle)
			out = append(out, one)
		}
	}
	return out, nil
}

// Folded returns one job for the tasks of an array that wait alike, in the
// place of the first of them, as Slurm lists them: tasks in the queue of a
// GPU are separate jobs to the coordinator.
func Folded(jobs []slurm.Job) []slurm.Job {
	groups := map[alike][]int{}
	for i := range jobs {
		if k, ok := alikeOf(&jobs[i]); ok {
			groups[k] = append(groups[k], i)
		}
	}
	out := make([]slurm.Job, 0, len(jobs))
	for i := range jobs {
		k, ok := alikeOf(&jobs[i])
		group := groups[k]
		if !ok || len(group) == 1 {
			out = append(out, jobs[i])
			continue
		}
		if group[0] != i {
			continue
		}
		var lists []string
		for _, at := range group {
			lists = append(lists, jobs[at].Tasks)
		}
		one := jobs[i]
		if tasks, err := client.UnionOfTasks(lists); err == nil {
			one.InArray(one.ArrayID, tasks.String(), one.Throttle)
		}
		out = append(out, one)
	}
	return out
}

// alike is what waiting tasks that are listed as one have in common.
type alike struct {
	array                              uint64
	code, reason, name, partition, qos string
}

func alikeOf(j *slurm.Job) (alike, bool) {
	return alike{j.ArrayID, j.Code, j.Reason, j.Name, j.Partition, j.QOS}, j.ArrayID != 0 && j.Code == "PD" && !j.Begun
}

// PrintRecords prints jobs, those of requested arrays in Slurm's order.
func PrintRecords(w io.Writer, r *slurm.Record, jobs []slurm.Job, asked bool) error {
	if asked {
		slices.SortStableFunc(jobs, func(a, b slurm.Job) int { return lastBegunFirst(&a, &b) })
	}
	slurm.Masters(jobs)
	for i := range jobs {
		if err := r.Job(w, &jobs[i]); err != nil {
			return err
		}
	}
	return nil
}

// lastBegunFirst is Slurm's order within an array: what waits, and then from
// the task that began last.
func lastBegunFirst(a, b *slurm.Job) int {
	switch {
	case a.ArrayID == 0 || a.ArrayID != b.ArrayID:
		return cmp.Compare(cmp.Or(a.ArrayID, a.ID), cmp.Or(b.ArrayID, b.ID))
	case a.Folds() != b.Folds():
		if a.Folds() {
			return -1
		}
		return 1
	}
	return cmp.Compare(b.ID, a.ID)
}
