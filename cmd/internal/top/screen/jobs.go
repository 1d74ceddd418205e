package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// jobRow is a line of the jobs: a job, or an array with its known tasks.
type jobRow struct {
	*entry
	array uint64 // of a line for the whole array
	tasks []*entry
	task  bool // below the line of its array
}

var jobSorts = []string{"state", "id", "name", "user", "time", "gpus"}

// makeJobRows are the lines for all jobs to be shown, in order.
func (s *Screen) makeJobRows() []jobRow {
	low := strings.ToLower(s.filters[TabJobs])
	rows := make([]jobRow, 0, len(s.store.byID))
	at := map[uint64]int{}
	for _, e := range s.store.byID {
		if e.rank == rankEnded && !s.ended || s.mine && !s.isMine(e.job) || low != "" && !strings.Contains(e.low, low) {
			continue
		}
		a := e.job.GetArrayJobId()
		if a == 0 {
			rows = append(rows, jobRow{entry: e})
			continue
		}
		i, ok := at[a]
		if !ok {
			i = len(rows)
			at[a] = i
			rows = append(rows, jobRow{entry: e, array: a})
		}
		rows[i].tasks = append(rows[i].tasks, e)
	}
	for i := range rows {
		r := &rows[i]
		slices.SortFunc(r.tasks, func(a, b *entry) int {
			return cmp.Or(a.rank-b.rank, cmp.Compare(a.job.GetArrayTaskId(), b.job.GetArrayTaskId()))
		})
		if len(r.tasks) > 0 {
			r.entry = r.tasks[0]
		}
		if len(r.tasks) == 1 {
			r.array, r.tasks = 0, nil
		}
	}
	slices.SortFunc(rows, s.jobOrder())
	return s.unfold(rows)
}

// unfold puts the tasks of open arrays below their line.
func (s *Screen) unfold(rows []jobRow) []jobRow {
	if len(s.open) == 0 {
		return rows
	}
	out := make([]jobRow, 0, len(rows))
	for _, r := range rows {
		out = append(out, r)
		if r.array != 0 && s.open[r.array] {
			for _, e := range r.tasks {
				out = append(out, jobRow{entry: e, task: true})
			}
		}
	}
	return out
}

func (s *Screen) jobOrder() func(a, b jobRow) int {
	by := s.sorts[TabJobs]
	first := func(a, b jobRow) int {
		switch jobSorts[by.by] {
		case "name":
			return strings.Compare(a.name, b.name)
		case "user":
			return strings.Compare(a.job.GetUser(), b.job.GetUser())
		case "time":
			return cmp.Compare(s.ran(b.job), s.ran(a.job))
		case "gpus":
			return b.gpus() - a.gpus()
		case "id":
			return 0
		}
		return a.rank - b.rank
	}
	newest := func(a, b jobRow) int { return cmp.Compare(b.job.GetId(), a.job.GetId()) }
	if by.reverse {
		return func(a, b jobRow) int { return -cmp.Or(first(a, b), newest(a, b)) }
	}
	return func(a, b jobRow) int { return cmp.Or(first(a, b), newest(a, b)) }
}

// ran is how long a job has run.
func (s *Screen) ran(j *apiv1.Job) time.Duration {
	if j.GetStarted() == nil || console.Waiting(j.GetState()) {
		return 0
	}
	end := s.now
	if j.GetEnded() != nil {
		end = j.GetEnded().AsTime()
	}
	return max(0, end.Sub(j.GetStarted().AsTime()))
}

// gpus is how many GPUs a line has or requests in total.
func (r jobRow) gpus() int {
	if r.array == 0 {
		return int(r.job.GetGpusWanted()) * int(max(1, r.job.GetNodesWanted()))
	}
	n := 0
	for _, e := range r.tasks {
		if e.rank == rankRunning {
			n += int(e.job.GetGpusWanted()) * int(max(1, e.job.GetNodesWanted()))
		}
	}
	return n
}

// label is what the line is called, and how commands name it.
func (r jobRow) label() string {
	if r.array != 0 {
		return strconv.FormatUint(r.array, 10)
	}
	return client.JobLabel(r.job)
}

// named is how commands name what the line stands for: all of it, and one job for show
// and why, which is the array for tasks that are listed as one.
func (r jobRow) named() (all, one string) {
	all = r.label()
	if one = all; r.array == 0 && r.job.GetArrayCount() > 1 {
		one = strconv.FormatUint(r.job.GetArrayJobId(), 10)
	}
	return all, one
}

func (s drawing) jobTable() table {
	t := table{
		cols: []column{
			{head: "JOBID", width: 10}, {head: "NAME", width: 12, grow: true}, {head: "USER", width: 8, rank: 1}, {head: "ST", width: 3},
			{head: "TIME", width: 10, right: true, rank: 1}, {head: "GPUS", width: 4, right: true, rank: 1}, {head: "GPU", width: 12, rank: 2}, {head: "SHARE", width: 14, rank: 4},
			{head: "PARTITION", width: 10, rank: 6}, {head: "ACCOUNT", width: 10, rank: 7}, {head: "NODE(REASON)", width: 12, grow: true},
		},
		n:     len(s.jobRows),
		key:   func(i int) string { return s.jobRows[i].label() },
		cells: func(i int) []cell { return s.jobCells(s.jobRows[i]) },
		empty: "no job is waiting or running",
	}
	switch {
	case !s.gotJobs:
		t.empty = "loading the jobs …"
	case s.filters[TabJobs] != "" || s.mine:
		t.empty = "no job matches; Esc clears the filter, m shows everybody's"
	}
	return t
}

func (s drawing) jobCells(r jobRow) []cell {
	j := r.job
	name, id, where := r.name, r.label(), clean(console.Where(j))
	gpu, share, ran := clean(console.CardsOf(j)), console.ShareText(j.GetGpus()), console.Clock(s.ran(j))
	switch {
	case r.array != 0:
		id = s.ink.pick("▸", "+") + id
		if s.open[r.array] {
			id = s.ink.pick("▾", "-") + r.label()
		}
		gpu, share, ran, where = "", "", "", statesText(r.tasks)
	case r.task:
		id = "  " + id
	}
	return []cell{
		text(id), text(name), text(clean(j.GetUser())), styled(stateStyle(j.GetState()), console.StateCode(clean(j.GetState()))), text(ran),
		text(strconv.Itoa(r.gpus())), text(gpu), text(share), text(clean(j.GetPartition())), text(clean(j.GetAccount())), text(where),
	}
}

// statesText counts the tasks by state.
func statesText(tasks []*entry) string {
	var codes []string
	n := map[string]int{}
	for _, e := range tasks {
		code := console.StateCode(e.job.GetState())
		if n[code] == 0 {
			codes = append(codes, code)
		}
		n[code] += e.count()
	}
	for i, code := range codes {
		codes[i] = fmt.Sprintf("%d %s", n[code], clean(code))
	}
	return strings.Join(codes, ", ")
}

func stateStyle(state string) style {
	switch {
	case state == "COMPLETED":
		return dim
	case console.Terminal(state):
		return red
	case console.Waiting(state):
		return yellow
	}
	return green
}

// tally counts running and waiting tasks.
func (s *store) tally() (running, waiting int) {
	for _, e := range s.byID {
		switch e.rank {
		case rankRunning:
			running += e.count()
		case rankQueued, rankPending:
			waiting += e.count()
		}
	}
	return running, waiting
}
