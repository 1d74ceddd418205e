package apiconv

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// JobColumns returns what tables show of jobs, which are ordered by id. It holds
// nothing that only some may see.
func JobColumns(jobs []*cluster.Job) *apiv1.JobColumns {
	b := columns{out: &apiv1.JobColumns{Texts: []string{""}}, at: map[string]uint32{"": 0}, n: len(jobs)}
	m := b.out
	m.Ids = make([]uint64, 0, len(jobs))
	for i, j := range jobs {
		m.Ids = append(m.Ids, uint64(j.ID))
		b.text(&m.Users, i, j.Owner.Name)
		set(&m.Uids, i, uint32(j.Owner.UID), b.n)
		b.text(&m.States, i, j.State.String())
		b.text(&m.Reasons, i, string(j.Reason.Code))
		set(&m.Submitted, i, int64(j.Submitted), b.n)
		set(&m.Eligible, i, int64(j.Submitted), b.n)
		set(&m.Started, i, int64(j.Started), b.n)
		set(&m.Ended, i, int64(j.Ended), b.n)
		set(&m.EstimatedStarts, i, int64(j.EstStart), b.n)
		if n := len(j.Attempts); n > 1 {
			set(&m.Restarts, i, uint32(n-1), b.n)
		}
		b.spec(i, j)
		b.attempt(i, j)
		if j.InArray() {
			set(&m.Arrays, i, uint64(j.ArrayJobID), b.n)
			b.text(&m.ArrayTasks, i, j.TasksText())
			if j.Spec != nil && j.Spec.Array != nil {
				set(&m.ArrayThrottles, i, uint32(j.Spec.Array.Throttle), b.n)
			}
		}
	}
	return m
}

// spec sets what was asked for.
func (b *columns) spec(i int, j *cluster.Job) {
	s, m := j.Spec, b.out
	if s == nil {
		return
	}
	b.text(&m.Names, i, s.Name)
	b.text(&m.Partitions, i, s.Partition)
	b.text(&m.Accounts, i, s.Account)
	b.text(&m.Qos, i, s.QOS)
	set(&m.Nices, i, s.Nice, b.n)
	if len(j.Depends) > 0 {
		b.text(&m.Dependencies, i, j.Dependency())
	}
	set(&m.Gpus, i, uint32(max(0, s.GPUs)), b.n)
	b.text(&m.GpuTypes, i, s.GPUType)
	if s.Ranked() {
		set(&m.NodesWanted, i, uint32(s.NodeCount()), b.n)
		set(&m.TasksPerNode, i, uint32(s.TaskCount()), b.n)
	}
	cpu, mem := s.CPUMilli, s.MemMiB
	if a := j.Last(); a != nil && !j.State.Waiting() && a.Berth.MemMiB > 0 {
		cpu, mem = a.Berth.CPUMilli, a.Berth.MemMiB
	}
	set(&m.CpuMilli, i, cpu, b.n)
	set(&m.MemMib, i, mem, b.n)
	b.text(&m.AskedNodes, i, string(s.Node))
	if s.Begin > 0 {
		set(&m.Eligible, i, int64(s.Begin), b.n)
	}
	set(&m.Deadlines, i, int64(s.Deadline), b.n)
	set(&m.TimeLimits, i, s.TimeLimit.Milliseconds(), b.n)
	set(&m.Requeues, i, s.RequeueOnLoss, b.n)
}

// attempt sets where the job is or was.
func (b *columns) attempt(i int, j *cluster.Job) {
	a := j.Last()
	if a == nil || j.State.Waiting() {
		return
	}
	nodes := string(a.Berth.Node)
	if a.Gang != nil {
		nodes = hostnames.Fold(a.NodeIDs())
	}
	b.text(&b.out.NodeLists, i, nodes)
	if a.Exit != nil {
		set(&b.out.ExitCodes, i, a.Exit.Code, b.n)
		set(&b.out.Signals, i, a.Exit.Signal, b.n)
	}
}

// columns builds the columns of n jobs.
type columns struct {
	out *apiv1.JobColumns
	at  map[string]uint32
	n   int
}

// set sets a value in a column, which stays empty as long as all are zero.
func set[T comparable](col *[]T, i int, v T, n int) {
	var zero T
	if *col == nil {
		if v == zero {
			return
		}
		*col = make([]T, n)
	}
	(*col)[i] = v
}

// text sets a text in a column; adjacent jobs mostly have the same.
func (b *columns) text(col *[]uint32, i int, s string) {
	if s == "" {
		return
	}
	if i > 0 && *col != nil && b.out.Texts[(*col)[i-1]] == s {
		(*col)[i] = (*col)[i-1]
		return
	}
	k, ok := b.at[s]
	if !ok {
		k = uint32(len(b.out.Texts))
		b.out.Texts = append(b.out.Texts, s)
		b.at[s] = k
	}
	set(col, i, k, b.n)
}

// Columns reads received columns; whatever they hold, it stays within their bounds.
type Columns struct{ M *apiv1.JobColumns }

// Cell returns an entry of a column, zero if it has none.
func Cell[T any](col []T, i int) T {
	if i < len(col) {
		return col[i]
	}
	var zero T
	return zero
}

// Text returns an entry of a text column.
func (c Columns) Text(col []uint32, i int) string { return Cell(c.M.GetTexts(), int(Cell(col, i))) }

// Job returns the job in a row, in brief.
func (c Columns) Job(i int) *apiv1.Job {
	m := c.M
	j := &apiv1.Job{
		Id: m.GetIds()[i], Name: c.Text(m.GetNames(), i), User: c.Text(m.GetUsers(), i), Uid: Cell(m.GetUids(), i),
		State: c.Text(m.GetStates(), i), Reason: c.Text(m.GetReasons(), i), Partition: c.Text(m.GetPartitions(), i),
		Account: c.Text(m.GetAccounts(), i), Qos: c.Text(m.GetQos(), i), Nice: Cell(m.GetNices(), i),
		Dependency: c.Text(m.GetDependencies(), i), GpusWanted: Cell(m.GetGpus(), i), NodesWanted: Cell(m.GetNodesWanted(), i),
		TasksPerNode: Cell(m.GetTasksPerNode(), i), NodeList: c.Text(m.GetNodeLists(), i), Signal: Cell(m.GetSignals(), i),
		Submitted: ToTime(cluster.Time(Cell(m.GetSubmitted(), i))), Started: ToTime(cluster.Time(Cell(m.GetStarted(), i))),
		Ended: ToTime(cluster.Time(Cell(m.GetEnded(), i))), EstimatedStart: ToTime(cluster.Time(Cell(m.GetEstimatedStarts(), i))),
	}
	if j.ArrayJobId = Cell(m.GetArrays(), i); j.ArrayJobId != 0 {
		j.ArrayThrottle = Cell(m.GetArrayThrottles(), i)
		if j.ArrayTasks = c.Text(m.GetArrayTasks(), i); !strings.ContainsAny(j.ArrayTasks, "-,:") {
			if n, err := strconv.ParseUint(j.ArrayTasks, 10, 32); err == nil {
				j.ArrayTaskId, j.ArrayTasks = new(uint32(n)), ""
			}
		}
	}
	j.Node = j.NodeList
	if code := Cell(m.GetExitCodes(), i); cmp.Or(code, j.Signal) != 0 {
		j.ExitCode = &code
	}
	return j
}
