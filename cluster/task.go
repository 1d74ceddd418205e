package cluster

import "strconv"

// Count is how many tasks j stands for: 1, or as many as it folds.
func (j *Job) Count() int {
	if j.Fold == nil {
		return 1
	}
	return SpanLen(j.Fold)
}

// Len is how many jobs a spec makes: 1, or as many as its array has tasks.
func (s *Spec) Len() int {
	if s.Array == nil {
		return 1
	}
	return s.Array.Tasks.Len()
}

// InArray reports whether j is a task of an array, or several of them.
func (j *Job) InArray() bool { return j.ArrayJobID != 0 }

// Rank is where the task of j stands in its array, from 0.
func (j *Job) Rank() int { return int(j.ID - j.ArrayJobID) }

// Ranks are the ranks in its array that j stands for.
func (j *Job) Ranks() []Span {
	if j.Fold != nil {
		return j.Fold
	}
	return []Span{{j.Rank(), j.Rank()}}
}

// TasksText is the tasks that j stands for, 7 or 8-99; "" without an array.
func (j *Job) TasksText() string {
	switch {
	case !j.InArray():
		return ""
	case j.Fold == nil:
		return strconv.FormatUint(uint64(j.ArrayTaskID), 10)
	}
	return j.Spec.Array.Tasks.Format(j.Fold)
}

// Label is what people call j: 17, 1234_7, or 1234_[8-99] for folded tasks.
func (j *Job) Label() string {
	switch {
	case !j.InArray():
		return j.ID.String()
	case j.Fold == nil:
		return j.ArrayJobID.String() + "_" + j.TasksText()
	}
	return j.ArrayJobID.String() + "_[" + j.TasksText() + "]"
}

// Task is the task of a rank by itself: what j, which folds it, says of it.
func (j *Job) Task(rank int) *Job {
	c := *j
	c.ID, c.ArrayTaskID, c.Fold = j.ArrayJobID+JobID(rank), j.Spec.Array.Tasks.At(rank), nil
	return &c
}

// Folding is j for other ranks of its array, at least one. Its id is that of
// the last of them.
func (j *Job) Folding(ranks []Span) *Job {
	c := j.Task(ranks[len(ranks)-1].To)
	if SpanLen(ranks) > 1 {
		c.Fold = ranks
	}
	return c
}
