package cluster

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
)

// Count returns how many tasks j stands for: 1, or as many as it folds.
func (j *Job) Count() int {
	if j.Fold == nil {
		return 1
	}
	return SpanLen(j.Fold)
}

// Len returns how many jobs a spec makes: 1, or the number of its array's tasks.
func (s *Spec) Len() int {
	if s.Array == nil {
		return 1
	}
	return s.Array.Tasks.Len()
}

// InArray reports whether j is one or several tasks of an array.
func (j *Job) InArray() bool { return j.ArrayJobID != 0 }

// Rank returns the rank of j's task in its array, from 0.
func (j *Job) Rank() int { return int(j.ID - j.ArrayJobID) }

// Ranks returns the ranks in its array that j stands for.
func (j *Job) Ranks() []Span {
	if j.Fold != nil {
		return j.Fold
	}
	return []Span{{j.Rank(), j.Rank()}}
}

// TasksText returns the tasks that j stands for, 7 or 8-99; "" without an array.
func (j *Job) TasksText() string {
	switch {
	case !j.InArray():
		return ""
	case j.Fold == nil:
		return strconv.FormatUint(uint64(j.ArrayTaskID), 10)
	}
	return j.Spec.Array.Tasks.Format(j.Fold)
}

// Label returns j's name for users: 17, 1234_7, or 1234_[8-99] for folded tasks.
func (j *Job) Label() string {
	switch {
	case !j.InArray():
		return j.ID.String()
	case j.Fold == nil:
		return j.ArrayJobID.String() + "_" + j.TasksText()
	}
	return j.ArrayJobID.String() + "_[" + j.TasksText() + "]"
}

// Task returns the task at a rank that j folds as a job of its own.
func (j *Job) Task(rank int) *Job {
	c := *j
	c.ID, c.ArrayTaskID, c.Fold = j.ArrayJobID+JobID(rank), j.Spec.Array.Tasks.At(rank), nil
	return &c
}

// Folding returns j for other ranks of its array, at least one. Its id is that of
// the last of them.
func (j *Job) Folding(ranks []Span) *Job {
	c := j.Task(ranks[len(ranks)-1].To)
	if SpanLen(ranks) > 1 {
		c.Fold = ranks
	}
	return c
}

// maxOverlap bounds how many numbers overlapping runs may name in all, counting
// duplicates: twice what a list of distinct numbers can hold.
const maxOverlap = 2 * (MaxTaskID + 1)

// NewTasks makes a set of runs in any order, which may overlap. A run that counts
// down or exceeds MaxTaskID is an error, and so are runs that name the same numbers
// too often. Its cost is linear in the runs unless runs with steps overlap others.
func NewTasks(runs []TaskRun) (Tasks, error) {
	for i := range runs {
		if r := &runs[i]; r.First > r.Last || r.Last > MaxTaskID {
			return Tasks{}, Errorf(CodeInvalid, "tasks %d-%d: want FROM-TO with FROM at most TO, and TO at most %d", r.First, r.Last, MaxTaskID)
		}
	}
	if runs = tidy(runs); apart(runs) { // as stored
		return longest(runs), nil
	}
	if runs = mergeRuns(runs); apart(runs) {
		return longest(runs), nil
	}
	total := 0
	for i := range runs {
		total += runs[i].len()
	}
	if total > maxOverlap {
		return Tasks{}, Errorf(CodeInvalid, "tasks: %d ranges overlap and name %d numbers in all, at most %d are read; name each number once", len(runs), total, maxOverlap)
	}
	set := make([]uint64, MaxTaskID/64+1)
	for _, r := range runs {
		for id := uint64(r.First); id <= uint64(r.Last); id += uint64(r.Step) {
			set[id/64] |= 1 << (id % 64)
		}
	}
	return longest(runsOf(set)), nil
}

// apart reports whether each run ends before the next one begins.
func apart(runs []TaskRun) bool {
	for i := 1; i < len(runs); i++ {
		if runs[i-1].Last >= runs[i].First {
			return false
		}
	}
	return true
}

// tidy returns the runs with Last set to the last number actually reached, and 1
// for a Step of 0. The argument is not changed.
func tidy(runs []TaskRun) []TaskRun {
	out := make([]TaskRun, len(runs))
	for i, r := range runs {
		r.Step, r.at = max(1, r.Step), 0
		if r.Last -= (r.Last - r.First) % r.Step; r.First == r.Last {
			r.Step = 1
		}
		out[i] = r
	}
	return out
}

// mergeRuns sorts tidy runs by first number and merges those that have the same
// step and meet.
func mergeRuns(out []TaskRun) []TaskRun {
	// Bring runs with the same step and remainder together.
	slices.SortFunc(out, func(a, b TaskRun) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.First%a.Step, b.First%b.Step), cmp.Compare(a.First, b.First))
	})
	n := 0
	for _, r := range out {
		if n > 0 {
			if p := &out[n-1]; p.Step == r.Step && p.First%p.Step == r.First%r.Step && uint64(r.First) <= uint64(p.Last)+uint64(p.Step) {
				p.Last = max(p.Last, r.Last)
				continue
			}
		}
		out[n] = r
		n++
	}
	out = out[:n]
	slices.SortFunc(out, func(a, b TaskRun) int { return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Step, b.Step)) })
	// A contiguous range of all numbers covers a stepped run within it.
	whole := TaskRun{First: 1}
	return slices.DeleteFunc(out, func(r TaskRun) bool {
		if r.Step == 1 {
			whole = r
			return false
		}
		return whole.First <= r.First && r.Last <= whole.Last
	})
}

// runsOf returns the runs of bits that are set.
func runsOf(set []uint64) []TaskRun {
	var out []TaskRun
	for w, x := range set {
		for x != 0 {
			from := bits.TrailingZeros64(x)
			to := from + bits.TrailingZeros64(^(x >> from)) // after the last one
			x &^= (1<<(to-from) - 1) << from
			first, last := uint32(w*64+from), uint32(w*64+to-1)
			if n := len(out); n > 0 && out[n-1].Last+1 == first {
				out[n-1].Last = last
				continue
			}
			out = append(out, TaskRun{First: first, Last: last, Step: 1})
		}
	}
	return out
}

// longest makes the set of disjoint, ordered runs, with the longest runs from the
// first number on, so that equal sets have equal runs.
func longest(runs []TaskRun) Tasks {
	var t Tasks
	var r *TaskRun // the last run of t, which may be extended
	for _, q := range runs {
		for more := true; more; {
			if r != nil && (r.First == r.Last || q.First-r.Last == r.Step) {
				// Extend it with the first number of q, and with the rest if the
				// step is the same.
				if r.First == r.Last {
					r.Step = q.First - r.Last
				}
				switch {
				case q.First == q.Last:
					r.Last, more = q.First, false
				case q.Step == r.Step:
					r.Last, more = q.Last, false
				default:
					r.Last = q.First
					q.First += q.Step
				}
				if q.First == q.Last {
					q.Step = 1
				}
				continue
			}
			t.runs = append(t.runs, q)
			r, more = &t.runs[len(t.runs)-1], false
		}
	}
	for i := range t.runs {
		t.runs[i].at = t.n
		t.n += t.runs[i].len()
	}
	return t
}

// In returns the ranks of those tasks that are also in o.
func (t *Tasks) In(o *Tasks) []Span {
	out, _ := t.InAtMost(o, MaxTaskID+1)
	return out
}

// InAtMost is like In, but returns false if the result has more than the given
// number of spans. Its cost is linear in the runs of both and the spans returned.
func (t *Tasks) InAtMost(o *Tasks, spans int) (out []Span, ok bool) {
	for i, k := 0, 0; i < len(t.runs) && k < len(o.runs); {
		r, q := &t.runs[i], &o.runs[k]
		if first, step, meets := r.meet(q); meets {
			rank := r.at + int((first-r.First)/r.Step)
			by := int(step / r.Step)
			n := int((min(r.Last, q.Last) - first) / step)
			for at := rank; at <= rank+n*by; at += by {
				to := at
				if by == 1 {
					to = rank + n
				}
				if l := len(out); l > 0 && out[l-1].To+1 == at {
					out[l-1].To = to
				} else if out = append(out, Span{at, to}); len(out) > spans {
					return nil, false
				}
				if by == 1 {
					break
				}
			}
		}
		if r.Last <= q.Last {
			i++
		} else {
			k++
		}
	}
	return out, true
}

// meet returns the first number that both runs have, and the distance to the next.
func (r *TaskRun) meet(q *TaskRun) (first, step uint32, ok bool) {
	lo, hi := uint64(max(r.First, q.First)), uint64(min(r.Last, q.Last))
	if lo > hi {
		return 0, 0, false
	}
	// x = r.First + a·r.Step must equal q.First modulo q.Step.
	p, s := int64(r.Step), int64(q.Step)
	g, inv := gcd(p%s, s)
	diff := int64(q.First) - int64(r.First)
	if diff%g != 0 {
		return 0, 0, false
	}
	m := s / g
	a := (diff/g%m*(inv%m)%m + m) % m
	lcm := uint64(p) * uint64(m)
	x := uint64(r.First) + uint64(a)*uint64(p)
	if x < lo {
		x += (lo - x + lcm - 1) / lcm * lcm
	}
	if x > hi {
		return 0, 0, false
	}
	return uint32(x), uint32(min(lcm, MaxTaskID+1)), true
}

// gcd returns the greatest common divisor of a and b, which must be above 0, and a
// number inv such that a·inv is g modulo b.
func gcd(a, b int64) (g, inv int64) {
	x, y := int64(1), int64(0)
	for b != 0 {
		q := a / b
		a, b, x, y = b, a-q*b, y, x-q*y
	}
	return a, x
}

// Select returns the tasks at some ranks.
func (t *Tasks) Select(ranks []Span) Tasks {
	var runs []TaskRun
	for _, sp := range ranks {
		for i, k := t.runAt(sp.From), sp.From; k <= sp.To; i++ {
			r := &t.runs[i]
			end := min(sp.To, r.at+r.len()-1)
			run := TaskRun{First: r.First + uint32(k-r.at)*r.Step, Last: r.First + uint32(end-r.at)*r.Step, Step: r.Step}
			if run.First == run.Last {
				run.Step = 1
			}
			runs = append(runs, run)
			k = end + 1
		}
	}
	return longest(runs)
}

// runAt returns the index of the run that contains a rank.
func (t *Tasks) runAt(rank int) int {
	i, found := slices.BinarySearchFunc(t.runs, rank, func(r TaskRun, n int) int { return cmp.Compare(r.at, n) })
	if !found {
		i--
	}
	return i
}
