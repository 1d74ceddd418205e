package cluster

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster/study"
)

// MaxTaskID bounds the task numbers of an array, and thus its size.
const MaxTaskID = 1<<22 - 1

// MaxThrottle bounds the number after % in an array.
const MaxThrottle = MaxTaskID + 1

// maxArrayText bounds the text parsed as a list of tasks, in bytes.
const maxArrayText = 1 << 18

// Array makes a job run once for each of a set of task numbers.
type Array struct {
	Tasks Tasks
	// Throttle is how many of the tasks may run at once, 0 for any number. It may
	// be changed later; see ArrayInfo.
	Throttle int
}

// Tasks is a set of task numbers. Values are immutable; the zero value is empty.
type Tasks struct {
	runs []TaskRun
	n    int
}

// TaskRun is First, First+Step, … up to Last; a Step of 0 means 1.
type TaskRun struct {
	First, Last, Step uint32
	at                int // rank of First
}

func (r *TaskRun) len() int { return int((r.Last-r.First)/r.Step) + 1 }

// Runs returns the runs of the set, in order. The caller must not modify them.
func (t *Tasks) Runs() []TaskRun { return t.runs }

// Len returns the number of tasks.
func (t *Tasks) Len() int { return t.n }

// At returns the task at rank, counted from 0; rank must be below Len.
func (t *Tasks) At(rank int) uint32 {
	i := len(t.runs) - 1
	if t.runs[i].at > rank {
		i, _ = slices.BinarySearchFunc(t.runs, rank+1, func(r TaskRun, n int) int { return cmp.Compare(r.at, n) })
		i--
	}
	r := &t.runs[i]
	return r.First + uint32(rank-r.at)*r.Step
}

// Rank returns a task's position in the set, counted from 0.
func (t *Tasks) Rank(task uint32) (int, bool) {
	i := t.search(task)
	if i < 0 {
		return 0, false
	}
	r := &t.runs[i]
	if task > r.Last || (task-r.First)%r.Step != 0 {
		return 0, false
	}
	return r.at + int((task-r.First)/r.Step), true
}

// search returns the index of the last run that begins at or before task, -1 for
// none.
func (t *Tasks) search(task uint32) int {
	i, found := slices.BinarySearchFunc(t.runs, task, func(r TaskRun, n uint32) int { return cmp.Compare(r.First, n) })
	if found {
		return i
	}
	return i - 1
}

// Min returns the smallest task of a non-empty set.
func (t *Tasks) Min() uint32 { return t.runs[0].First }

// Max returns the largest task of a non-empty set.
func (t *Tasks) Max() uint32 { return t.runs[len(t.runs)-1].Last }

// Step returns the distance between consecutive tasks if it is constant, else 1.
func (t *Tasks) Step() uint32 {
	if len(t.runs) == 1 {
		return t.runs[0].Step
	}
	return 1
}

// Span is the ranks From to To, both inclusive.
type Span struct{ From, To int }

// All returns the ranks of all tasks.
func (t *Tasks) All() []Span {
	if t.n == 0 {
		return nil
	}
	return []Span{{0, t.n - 1}}
}

// Format formats the tasks at ranks as Slurm does: 1-3,7 or 0-8:2.
func (t *Tasks) Format(ranks []Span) string {
	if s, ok := t.stepped(ranks); ok {
		return s
	}
	var b []byte
	first, last, open := uint32(0), uint32(0), false
	flush := func() {
		if !open {
			return
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(first), 10)
		if last > first {
			b = strconv.AppendUint(append(b, '-'), uint64(last), 10)
		}
	}
	t.blocks(ranks, func(from, to uint32) {
		if open && from == last+1 {
			last = to
			return
		}
		flush()
		first, last, open = from, to, true
	})
	flush()
	return string(b)
}

// blocks calls f with each stretch of consecutive tasks, in order.
func (t *Tasks) blocks(ranks []Span, f func(from, to uint32)) {
	for _, sp := range ranks {
		for k := sp.From; k <= sp.To; {
			i, found := slices.BinarySearchFunc(t.runs, k, func(r TaskRun, n int) int { return cmp.Compare(r.at, n) })
			if !found {
				i--
			}
			r := &t.runs[i]
			end := min(sp.To, r.at+r.len()-1)
			if r.Step == 1 {
				f(r.First+uint32(k-r.at), r.First+uint32(end-r.at))
			} else {
				for n := k; n <= end; n++ {
					id := r.First + uint32(n-r.at)*r.Step
					f(id, id)
				}
			}
			k = end + 1
		}
	}
}

// stepped formats three or more tasks at a constant distance above 1.
func (t *Tasks) stepped(ranks []Span) (string, bool) {
	n := SpanLen(ranks)
	if n < 3 {
		return "", false
	}
	first, second, last := t.At(ranks[0].From), uint32(0), t.At(ranks[len(ranks)-1].To)
	if ranks[0].To > ranks[0].From {
		second = t.At(ranks[0].From + 1)
	} else {
		second = t.At(ranks[1].From)
	}
	step := second - first
	if step < 2 || uint64(last-first) != uint64(step)*uint64(n-1) {
		return "", false
	}
	prev, ok := first, true
	t.blocks(ranks, func(from, to uint32) {
		ok = ok && from == to && (from == first || from-prev == step)
		prev = from
	})
	return strconv.FormatUint(uint64(first), 10) + "-" + strconv.FormatUint(uint64(last), 10) + ":" + strconv.FormatUint(uint64(step), 10), ok
}

// String returns all tasks as they are typed.
func (t Tasks) String() string { return t.Format(t.All()) }

// Equal reports whether both hold the same tasks.
func (t Tasks) Equal(o Tasks) bool { return slices.Equal(t.runs, o.runs) }

// String returns the array as it is typed, 0-99%4.
func (a *Array) String() string {
	s := a.Tasks.String()
	if a.Throttle > 0 {
		s += "%" + strconv.Itoa(a.Throttle)
	}
	return s
}

// ParseArray parses the value of --array: comma-separated numbers and ranges
// FROM-TO or FROM-TO:STEP, and %N for how many may run at once.
func ParseArray(s string) (*Array, error) {
	list, limit, has := strings.Cut(s, "%")
	t, err := ParseTasks(list)
	if err != nil {
		return nil, err
	}
	a := &Array{Tasks: t}
	if has {
		n, err := strconv.ParseUint(limit, 10, 32)
		if err != nil || n < 1 || n > MaxThrottle || limit[0] == '+' {
			return nil, Errorf(CodeInvalid, "array %s: want the number of tasks that may run at once after %%, 1 to %d; leave it out for no limit", QuoteShort(s), MaxThrottle)
		}
		a.Throttle = int(n)
	}
	return a, nil
}

// ParseTasks parses a list of tasks, 1-3,7,10-20:5. The error says which part is
// wrong.
func ParseTasks(s string) (Tasks, error) {
	if len(s) > maxArrayText {
		return Tasks{}, Errorf(CodeInvalid, "array: %d bytes of text, at most %d are read; write ranges such as 0-9999", len(s), maxArrayText)
	}
	var runs []TaskRun
	for part := range strings.SplitSeq(s, ",") {
		r, err := parseRun(part)
		if err != nil {
			return Tasks{}, err
		}
		runs = append(runs, r)
	}
	return NewTasks(runs)
}

func parseRun(part string) (TaskRun, error) {
	bad := func(why string) (TaskRun, error) {
		return TaskRun{}, Errorf(CodeInvalid, "array: %s %s; want numbers and ranges such as 1-100, 0-9:3 or 1,5,9", QuoteShort(part), why)
	}
	number := func(s string) (uint32, bool) {
		n, err := strconv.ParseUint(s, 10, 32)
		return uint32(n), err == nil && s[0] >= '0' && s[0] <= '9'
	}
	span, by, stepped := strings.Cut(part, ":")
	from, to, ranged := strings.Cut(span, "-")
	r := TaskRun{Step: 1}
	var ok bool
	if r.First, ok = number(from); !ok {
		return bad("is no task number")
	}
	r.Last = r.First
	if ranged {
		if r.Last, ok = number(to); !ok {
			return bad("has no end")
		}
	}
	if stepped {
		if r.Step, ok = number(by); !ok || r.Step == 0 || !ranged {
			return bad("has a step that is none: FROM-TO:STEP with STEP from 1 on")
		}
	}
	switch {
	case r.First > r.Last:
		return bad("counts down")
	case r.Last > MaxTaskID:
		return TaskRun{}, Errorf(CodeInvalid, "array: %s is above %d, the highest task number", QuoteShort(part), MaxTaskID)
	}
	return r, nil
}

// SpanLen returns the number of ranks in spans.
func SpanLen(spans []Span) int {
	n := 0
	for _, s := range spans {
		n += s.To - s.From + 1
	}
	return n
}

// SpanHas reports whether rank is in the sorted spans.
func SpanHas(spans []Span, rank int) bool {
	_, ok := spanAt(spans, rank)
	return ok
}

// spanAt returns the index of the span that contains rank, or before which it would
// be inserted.
func spanAt(spans []Span, rank int) (int, bool) {
	i, _ := slices.BinarySearchFunc(spans, rank, func(s Span, n int) int { return cmp.Compare(s.To, n) })
	return i, i < len(spans) && spans[i].From <= rank
}

// SpanAnd returns the ranks in both a and b.
func SpanAnd(a, b []Span) []Span {
	var out []Span
	for i, k := 0, 0; i < len(a) && k < len(b); {
		if from, to := max(a[i].From, b[k].From), min(a[i].To, b[k].To); from <= to {
			out = append(out, Span{from, to})
		}
		if a[i].To < b[k].To {
			i++
		} else {
			k++
		}
	}
	return out
}

// SpanSub returns the ranks in a but not in b.
func SpanSub(a, b []Span) []Span {
	var out []Span
	k := 0
	for _, s := range a {
		for k < len(b) && b[k].To < s.From {
			k++
		}
		for i := k; i < len(b) && b[i].From <= s.To; i++ {
			if b[i].From > s.From {
				out = append(out, Span{s.From, b[i].From - 1})
			}
			s.From = b[i].To + 1
		}
		if s.From <= s.To {
			out = append(out, s)
		}
	}
	return out
}

// SpanOr returns the ranks in a or b.
func SpanOr(a, b []Span) []Span {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y Span) int { return cmp.Compare(x.From, y.From) })
	var out []Span
	for _, s := range all {
		if n := len(out); n > 0 && s.From <= out[n-1].To+1 {
			out[n-1].To = max(out[n-1].To, s.To)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// SpanRank returns the k-th rank, counted from 0; k must be below SpanLen.
func SpanRank(spans []Span, k int) int {
	for _, s := range spans {
		if n := s.To - s.From + 1; k >= n {
			k -= n
			continue
		}
		return s.From + k
	}
	panic("cluster: a rank that spans do not have")
}

// GPUTime returns the whole-GPU time that j has used until now, over all its
// attempts.
func (j *Job) GPUTime(now Time) (sum time.Duration) {
	for i := range j.Attempts {
		a := &j.Attempts[i]
		end := cmp.Or(a.Ended, now)
		if a.Started > 0 && end > a.Started {
			sum += end.Sub(a.Started) / WholeGPU * time.Duration(a.GPUMilli)
		}
	}
	return sum
}

// Copies returns, oldest first, each case of a trial that continued from the state
// of another.
func (j *Job) Copies() (out []*study.Copy) {
	for i := range j.Attempts {
		if p := j.Attempts[i].Preempt; p != nil && p.Copy != nil && (i < len(j.Attempts)-1 || j.State.Waiting()) {
			out = append(out, p.Copy)
		}
	}
	return out
}

// Copy returns the last of Copies, nil for none.
func (j *Job) Copy() *study.Copy {
	if all := j.Copies(); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// Seen returns the metric from the newest attempt of a trial that reported one, nil
// for none.
func (j *Job) Seen() *study.Seen {
	for i := range slices.Backward(j.Attempts) {
		if p := j.Attempts[i].Progress; p != nil && p.Seen != nil {
			return p.Seen
		}
	}
	return nil
}
