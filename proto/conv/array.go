package conv

import (
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func arrayToLog(a *cluster.Array) *logv1.Array {
	if a == nil {
		return nil
	}
	return &logv1.Array{Runs: RunsToLog(&a.Tasks), Throttle: uint32(a.Throttle)}
}

// RunsToLog converts a set of tasks to the first, last and step of each run.
func RunsToLog(t *cluster.Tasks) []uint32 {
	var out []uint32
	for _, r := range t.Runs() {
		out = append(out, r.First, r.Last, r.Step)
	}
	return out
}

// RunsFromLog converts back.
func RunsFromLog(runs []uint32) (cluster.Tasks, error) {
	if len(runs)%3 != 0 {
		return cluster.Tasks{}, fmt.Errorf("tasks of %d numbers", len(runs))
	}
	var out []cluster.TaskRun
	for i := 0; i < len(runs); i += 3 {
		out = append(out, cluster.TaskRun{First: runs[i], Last: runs[i+1], Step: runs[i+2]})
	}
	return cluster.NewTasks(out)
}

func arrayFromLog(m *logv1.Array) (*cluster.Array, error) {
	if m == nil {
		return nil, nil
	}
	t, err := RunsFromLog(m.GetRuns())
	if err != nil {
		return nil, err
	}
	if t.Len() == 0 || m.GetThrottle() > cluster.MaxThrottle {
		return nil, fmt.Errorf("array of %d tasks, %d at once", t.Len(), m.GetThrottle())
	}
	return &cluster.Array{Tasks: t, Throttle: int(m.GetThrottle())}, nil
}

// jobEstimates returns the estimates of a job; those of a task are its array's, unless
// they were recomputed.
func jobEstimates(j *cluster.Job) []*logv1.Estimate {
	if j.InArray() && j.Estimated == 0 {
		return nil
	}
	return EstimatesToLog(j.Estimates)
}

// taskToLog sets what makes j a task of an array.
func taskToLog(m *logv1.Job, j *cluster.Job) {
	if !j.InArray() {
		return
	}
	m.ArrayJob, m.ArrayTask = uint64(j.ArrayJobID), j.ArrayTaskID
	for _, s := range j.Fold {
		m.Fold = append(m.Fold, uint32(s.From), uint32(s.To))
	}
	if j.OwnLimit != nil {
		m.OwnLimitUs = new(j.OwnLimit.Microseconds())
	}
}

// TaskFromLog converts back the stored task of an array, whose spec and estimates
// are given.
func TaskFromLog(m *logv1.Job, spec *cluster.Spec, estimates []cluster.Estimate) (*cluster.Job, error) {
	var own *time.Duration
	if m.OwnLimitUs != nil {
		limit := us(m.GetOwnLimitUs())
		if limit < 0 {
			return nil, fmt.Errorf("job %d: a time limit of %s", m.GetId(), limit)
		}
		its := *spec
		its.TimeLimit, spec, own = limit, &its, &limit
	}
	if m.GetEstimatedUs() != 0 {
		estimates = EstimatesFromLog(m.GetEstimates())
	}
	j, err := jobFromLog(m, spec, estimates)
	if err != nil {
		return nil, err
	}
	j.OwnLimit = own
	j.ArrayJobID, j.ArrayTaskID = cluster.JobID(m.GetArrayJob()), m.GetArrayTask()
	if j.ArrayJobID == 0 {
		return nil, fmt.Errorf("job %d is no task", j.ID)
	}
	n := 0
	if spec.Array != nil {
		n = spec.Array.Tasks.Len()
	}
	if rank := j.Rank(); j.ID < j.ArrayJobID || rank >= n || spec.Array.Tasks.At(rank) != j.ArrayTaskID {
		return nil, fmt.Errorf("job %d is not task %d of array %d", j.ID, j.ArrayTaskID, j.ArrayJobID)
	}
	fold := m.GetFold()
	if len(fold)%2 != 0 {
		return nil, fmt.Errorf("job %d: spans of %d numbers", j.ID, len(fold))
	}
	next := 0
	for i := 0; i < len(fold); i += 2 {
		s := cluster.Span{From: int(fold[i]), To: int(fold[i+1])}
		if s.From < next || s.To < s.From || s.To >= n {
			return nil, fmt.Errorf("job %d: ranks %d-%d of %d are out of order", j.ID, s.From, s.To, n)
		}
		j.Fold, next = append(j.Fold, s), s.To+1
	}
	if k := len(j.Fold); k > 0 && (j.Fold[k-1].To != j.Rank() || cluster.SpanLen(j.Fold) < 2) {
		return nil, fmt.Errorf("job %d folds tasks that it cannot", j.ID)
	}
	return j, nil
}

// JobsOf returns how many jobs a submitted one makes: for an array as many as it
// has tasks.
func JobsOf(m *logv1.NewJob) int {
	a := m.GetSpec().GetArray()
	if a == nil {
		return 1
	}
	n := 0
	for r := a.GetRuns(); len(r) >= 3; r = r[3:] {
		n += int((r[1]-r[0])/max(1, r[2])) + 1
	}
	return n
}

func arrayTask(j *cluster.Job) *nodev1.ArrayTask {
	if !j.InArray() {
		return nil
	}
	t := &j.Spec.Array.Tasks
	return &nodev1.ArrayTask{
		Job: uint64(j.ArrayJobID), Task: j.ArrayTaskID, Count: uint32(t.Len()), Min: t.Min(), Max: t.Max(), Step: t.Step(),
	}
}
