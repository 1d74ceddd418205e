package console

import (
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// TaskRef names some tasks of a job array, as 3-9,12.
type TaskRef struct {
	Array uint64
	Tasks string
}

// String returns the tasks as they are typed: 1234_7 or 1234_[3-9].
func (r TaskRef) String() string {
	id := IDRanges([]uint64{r.Array})
	if strings.ContainsAny(r.Tasks, "-,:") {
		return id + "_[" + r.Tasks + "]"
	}
	return id + "_" + r.Tasks
}

// JobOrTasks formats a job, or tasks of an array, as they are typed.
func JobOrTasks(id uint64, tasks string) string {
	if tasks == "" {
		return strconv.FormatUint(id, 10)
	}
	return TaskRef{Array: id, Tasks: tasks}.String()
}

// ParseTask reads one job, or one task of an array: 1234_7. task is nil for a
// job by itself.
func ParseTask(arg string) (id uint64, task *uint32, err error) {
	job, text, ok := strings.Cut(arg, "_")
	if id, err = ParseID(job); err != nil || !ok {
		return id, nil, err
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, nil, Usagef("task %s: want one task of an array, such as 12_7", ShortQuote(arg))
	}
	return id, new(uint32(n)), nil
}

// ParseShown is ParseTask, and takes several tasks the way lists show those that
// wait alike, 1234_[3-9%2], for the first of them.
func ParseShown(arg string) (id uint64, task *uint32, err error) {
	job, list, ok := strings.Cut(arg, "_[")
	if !ok {
		return ParseTask(arg)
	}
	if id, err = ParseID(job); err != nil {
		return 0, nil, err
	}
	tasks, err := bracketed(arg, list)
	if err != nil {
		return 0, nil, err
	}
	return id, new(tasks.Min()), nil
}

// bracketed reads tasks after the bracket that opens, with the number that may run at
// once, as lists show it, or without.
func bracketed(arg, list string) (cluster.Tasks, error) {
	list, ok := strings.CutSuffix(list, "]")
	if !ok {
		return cluster.Tasks{}, Usagef("tasks %s: the ] is missing", ShortQuote(arg))
	}
	if before, most, ok := strings.Cut(list, "%"); ok && most != "" && strings.Trim(most, "0123456789") == "" {
		list = before
	}
	tasks, err := cluster.ParseTasks(list)
	if err != nil {
		return tasks, Usagef("tasks %s: %v", ShortQuote(arg), err)
	}
	return tasks, nil
}

// ParseJobs reads job ids as ParseIDs does, and tasks of arrays: 1234_7,
// 1234_[3-9], 1234_[1-9:2], 1234_[3-9%2]. The id of an array alone means the whole
// array.
func ParseJobs(args []string) (ids []uint64, tasks []TaskRef, err error) {
	return parseJobs(args, MaxIDs)
}

// ParseManyJobs is ParseJobs for a command that sends them in Batches.
func ParseManyJobs(args []string) (ids []uint64, tasks []TaskRef, err error) {
	return parseJobs(args, MaxNamed)
}

// Batches calls do with no more jobs and tasks than a coordinator takes in
// one request, until it fails: first with the jobs, then with the tasks.
func Batches(ids []uint64, tasks []TaskRef, do func([]uint64, []TaskRef) error) error {
	for len(ids)+len(tasks) > 0 {
		i := min(len(ids), MaxIDs)
		t := min(len(tasks), MaxIDs-i)
		if err := do(ids[:i:i], tasks[:t:t]); err != nil {
			return err
		}
		ids, tasks = ids[i:], tasks[t:]
	}
	return nil
}

func parseJobs(args []string, most int) (ids []uint64, tasks []TaskRef, err error) {
	var plain []string
	for _, arg := range args {
		for _, part := range SplitOutside(arg) {
			id, list, one := strings.Cut(part, "_")
			if !one {
				plain = append(plain, part)
				continue
			}
			r := TaskRef{Tasks: list}
			if r.Array, err = ParseID(id); err != nil {
				return nil, nil, err
			}
			inner, ok := strings.CutPrefix(list, "[")
			if !ok && strings.ContainsAny(list, "-,:%") {
				return nil, nil, Usagef("tasks %s: put several in brackets, 12_[3-9]", ShortQuote(part))
			}
			if !ok {
				inner += "]"
			}
			some, err := bracketed(part, inner)
			if err != nil {
				return nil, nil, err
			}
			r.Tasks = some.String()
			tasks = append(tasks, r)
		}
	}
	if ids, err = parseIDs(plain, most); err != nil {
		return nil, nil, err
	}
	if len(ids)+len(tasks) > most {
		return nil, nil, Usagef("%d jobs and lists of tasks, at most %d at once", len(ids)+len(tasks), most)
	}
	return ids, tasks, nil
}

// SplitOutside splits at commas outside brackets.
func SplitOutside(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth <= 0 {
				out, from = append(out, s[from:i]), i+1
			}
		}
	}
	return append(out, s[from:])
}
