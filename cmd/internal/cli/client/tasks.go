package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// ArrayTasks returns tasks of arrays as requests hold them.
func ArrayTasks(refs []console.TaskRef) []*apiv1.ArrayTasks {
	var out []*apiv1.ArrayTasks
	for _, r := range refs {
		out = append(out, &apiv1.ArrayTasks{Array: r.Array, Tasks: r.Tasks})
	}
	return out
}

// JobLabel returns a job's name for users: 17, 1234_7, or 1234_[8-99] for
// tasks that are listed as one.
func JobLabel(j *apiv1.Job) string {
	array := strconv.FormatUint(j.GetArrayJobId(), 10)
	switch {
	case j.GetArrayJobId() == 0:
		return strconv.FormatUint(j.GetId(), 10)
	case j.GetArrayCount() > 1:
		return array + "_[" + j.GetArrayTasks() + "]"
	}
	return array + "_" + strconv.FormatUint(uint64(j.GetArrayTaskId()), 10)
}

// Labels returns a function that writes a list of some of these jobs: tasks
// of arrays as 12_3, and by id those that could not be looked up.
func Labels(ctx context.Context, c *Client, ids []uint64) func([]uint64) string {
	label := map[uint64]string{}
	for some := range slices.Chunk(ids, console.MaxIDs) {
		jobs, err := ListJobs(ctx, c, &apiv1.ListJobsRequest{Ids: some, Finished: true, Brief: true})
		if err != nil {
			break
		}
		for _, j := range jobs {
			label[j.GetId()] = JobLabel(j)
		}
	}
	return func(ids []uint64) string {
		var out []string
		for _, id := range ids {
			out = append(out, cmp.Or(label[id], strconv.FormatUint(id, 10)))
		}
		return strings.Join(out, ", ")
	}
}

// TasksOf returns the tasks of its array that j is, or stands for; "" for a
// job by itself.
func TasksOf(j *apiv1.Job) string {
	if j.GetArrayTasks() != "" || j.ArrayTaskId == nil {
		return j.GetArrayTasks()
	}
	return strconv.FormatUint(uint64(j.GetArrayTaskId()), 10)
}

// Named returns how a request names exactly these jobs: a task by its array,
// since the id of the first task is the whole array's.
func Named(jobs []*apiv1.Job) (ids []uint64, tasks []console.TaskRef) {
	for _, j := range jobs {
		if of := j.GetArrayJobId(); of != 0 {
			tasks = append(tasks, console.TaskRef{Array: of, Tasks: TasksOf(j)})
		} else {
			ids = append(ids, j.GetId())
		}
	}
	return ids, tasks
}

// JobRef is a reference to jobs as typed: a job or a whole array by its id,
// or one task of an array. The first task of an array has its array's id.
type JobRef struct {
	ID    uint64 // of the job, the array or the task
	Array uint64 // 0 unless it is a task
	Task  uint32
}

// String returns the job as it is typed.
func (r JobRef) String() string {
	if r.Array == 0 {
		return strconv.FormatUint(r.ID, 10)
	}
	return fmt.Sprintf("%d_%d", r.Array, r.Task)
}

// Of reports whether j, from a listing, is the job, belongs to the array, or
// stands for the task among others. A job id that is a task's own matches any
// of those that are listed as one around it.
func (r JobRef) Of(j *apiv1.Job) bool {
	array := j.GetArrayJobId()
	switch {
	case r.Array == 0 && (j.GetId() == r.ID || array == r.ID):
		return true
	case array == 0 || r.Array != 0 && r.Array != array:
		return false
	case j.GetArrayCount() < 2:
		return j.GetId() == r.ID
	case r.ID < array || r.ID > j.GetId():
		return false
	case r.Array == 0:
		return true
	}
	tasks, err := cluster.ParseTasks(j.GetArrayTasks())
	_, ok := tasks.Rank(r.Task)
	return err == nil && ok
}

// JobRefs are jobs, arrays and tasks in the order in which they were given.
type JobRefs []JobRef

// IDs returns the ids to ask for.
func (rs JobRefs) IDs() []uint64 {
	var ids []uint64
	for _, r := range rs {
		ids = append(ids, r.ID)
	}
	return ids
}

// Keep filters jobs down to those that were requested: a request for the
// first task of an array by its id returns the whole array.
func (rs JobRefs) Keep(jobs []*apiv1.Job) []*apiv1.Job {
	if !slices.ContainsFunc(rs, func(r JobRef) bool { return r.Array == r.ID }) {
		return jobs
	}
	return slices.DeleteFunc(jobs, func(j *apiv1.Job) bool {
		return !slices.ContainsFunc(rs, func(r JobRef) bool { return r.Of(j) })
	})
}

// Missing reports which of those requested are not among the jobs.
func (rs JobRefs) Missing(jobs []*apiv1.Job) error {
	var gone JobRefs
	for _, r := range rs {
		if !slices.ContainsFunc(jobs, r.Of) {
			gone = append(gone, r)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return cluster.Errorf(cluster.CodeNotFound, "no such job: %s", gone)
}

// String returns all of them, as they are typed.
func (rs JobRefs) String() string {
	var ids []uint64
	var tasks []string
	for _, r := range rs {
		if r.Array == 0 {
			ids = append(ids, r.ID)
		} else {
			tasks = append(tasks, r.String())
		}
	}
	if len(ids) > 0 {
		tasks = append([]string{console.IDRanges(ids)}, tasks...)
	}
	return strings.Join(tasks, ",")
}

// ParseJobRefs reads what console.ParseJobs does, ids before tasks. It asks
// the coordinator for the ids of tasks.
func ParseJobRefs(ctx context.Context, c *Client, args []string) (JobRefs, error) {
	ids, tasks, err := console.ParseJobs(args)
	if err != nil {
		return nil, err
	}
	var out JobRefs
	for _, id := range ids {
		out = append(out, JobRef{ID: id})
	}
	for _, r := range tasks {
		some, err := taskRefs(ctx, c, r)
		if err != nil {
			return nil, err
		}
		if out = append(out, some...); len(out) > console.MaxIDs {
			return nil, console.Usagef("%d jobs and tasks, at most %d at once; name a whole array by its id", len(out), console.MaxIDs)
		}
	}
	return out, nil
}

// taskRefs gives tasks the ids that follow the array's, in order.
func taskRefs(ctx context.Context, c *Client, r console.TaskRef) (JobRefs, error) {
	some, err := cluster.ParseTasks(r.Tasks)
	if err != nil {
		return nil, err
	}
	array, err := c.GetJob(ctx, r.Array)
	if err != nil {
		return nil, err
	}
	if array.GetArray() == nil {
		return nil, cluster.Errorf(cluster.CodeNotFound, "job %d is not an array and has no tasks", r.Array)
	}
	all, err := cluster.ParseTasks(array.GetArray().GetTasks())
	if err != nil {
		return nil, err
	}
	var out JobRefs
	for _, sp := range all.In(&some) {
		for rank := sp.From; rank <= sp.To; rank++ {
			out = append(out, JobRef{ID: r.Array + uint64(rank), Array: r.Array, Task: all.At(rank)})
		}
	}
	if len(out) < some.Len() {
		return nil, cluster.Errorf(cluster.CodeNotFound, "%s: array %d does not have all of these tasks; its tasks are %s", r, r.Array, console.ShortQuote(all.String()))
	}
	return out, nil
}

// OneJob reads the job, or the task, named by an argument such as 12 or 12_7.
// An array must have exactly one task, since the request is about one job.
func OneJob(ctx context.Context, c *Client, arg string) (*apiv1.Job, error) {
	id, task, err := console.ParseTask(arg)
	if err != nil {
		return nil, err
	}
	job, err := c.GetTask(ctx, id, task)
	if err != nil {
		return nil, err
	}
	if a := job.GetArray(); a.GetSize() > 1 {
		return nil, cluster.Errorf(cluster.CodeConflict, "job %d is an array with tasks %s (%s): name one of them, such as %d_%d",
			id, strings.Trim(console.ShortQuote(a.GetTasks()), `"`), TaskStates(a), id, job.GetArrayTaskId())
	}
	return job, nil
}

// Again rereads a job or a task.
func Again(ctx context.Context, c *Client, j *apiv1.Job) (*apiv1.Job, error) {
	if j.GetArrayJobId() == 0 {
		return c.GetJob(ctx, j.GetId())
	}
	return c.GetTask(ctx, j.GetArrayJobId(), new(j.GetArrayTaskId()))
}

// RefTo returns the reference to a job that was read.
func RefTo(j *apiv1.Job) JobRef {
	return JobRef{ID: j.GetId(), Array: j.GetArrayJobId(), Task: j.GetArrayTaskId()}
}

// TaskStates says how many tasks of an array are in each state.
func TaskStates(a *apiv1.ArrayInfo) string {
	var out []string
	known := uint32(0)
	for _, s := range a.GetStates() {
		out = append(out, fmt.Sprintf("%d %s", s.GetCount(), s.GetState()))
		known += s.GetCount()
	}
	if known < a.GetSize() {
		out = append(out, strconv.FormatUint(uint64(a.GetSize()-known), 10)+" ended and kept only in the history")
	}
	return strings.Join(out, ", ")
}
