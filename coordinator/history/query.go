package history

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/berth-scheduler/berth/cluster"
)

// Query selects finished jobs. An empty field selects all.
type Query struct {
	// IDs are those of jobs, tasks or arrays; see Row.Is.
	IDs []cluster.JobID
	// Users are names or numbers.
	Users, Accounts, Partitions, Names []string
	States                             []cluster.JobState
	// EndedFrom and EndedBefore bound the end, SubmittedBefore the submit.
	EndedFrom, EndedBefore, SubmittedBefore cluster.Time
	// Limit is how many at most, 0 for all: the last ones of the order.
	Limit int
	// Before is the last place already returned, to continue from: what comes after
	// it in the query's order is selected.
	Before Place
	// OldestFirst goes from the oldest to the newest; otherwise the newest come
	// first. Jobs come in the order in which they ended.
	OldestFirst bool
}

// Place is a job's position in the order of ends; the zero value is no place.
type Place struct {
	Index uint64
	Job   cluster.JobID
}

// Place returns the row's place.
func (r *Row) Place() Place { return Place{r.Index, r.ID} }

// Before reports whether p is before o.
func (p Place) Before(o Place) bool {
	return p.Index < o.Index || p.Index == o.Index && p.Job < o.Job
}

// past reports whether a place was already returned to the caller.
func (q *Query) past(p Place) bool {
	if q.Before == (Place{}) {
		return false
	}
	if q.OldestFirst {
		return !q.Before.Before(p)
	}
	return !p.Before(q.Before)
}

// Match reports whether the query selects a row.
func (q *Query) Match(r *Row) bool {
	return q.times(r.Ended, r.Submitted) && !q.past(r.Place()) &&
		(len(q.IDs) == 0 || slices.ContainsFunc(q.IDs, r.Is)) && has(q.States, r.State) && (has(q.Users, r.User) || slices.Contains(q.Users, strconv.FormatUint(uint64(r.UID), 10))) &&
		has(q.Accounts, r.Account) && has(q.Partitions, r.Partition) && has(q.Names, r.Name)
}

func has[T comparable](set []T, v T) bool { return len(set) == 0 || slices.Contains(set, v) }

func (q *Query) times(ended, submitted cluster.Time) bool {
	return ended >= q.EndedFrom && (q.EndedBefore == 0 || ended < q.EndedBefore) &&
		(q.SubmittedBefore == 0 || submitted < q.SubmittedBefore)
}

// may reports whether a segment can contain any selected row.
func (q *Query) may(g *segment) bool {
	switch {
	case g.n == 0 || g.endMax < q.EndedFrom || q.EndedBefore != 0 && g.firstEnd >= q.EndedBefore:
		return false
	case q.Before == (Place{}):
	case q.OldestFirst && g.to < q.Before.Index, !q.OldestFirst && g.from >= q.Before.Index:
		return false
	}
	return len(q.IDs) == 0 || slices.ContainsFunc(q.IDs, func(id cluster.JobID) bool { return id >= g.minID && id <= g.maxID })
}

// Result is a job that a query selected. It is valid until the next one.
type Result struct {
	Row    *Row
	record func() ([]byte, error)
}

// Job reads the whole job, without what Record leaves out.
func (r *Result) Job() (*cluster.Job, error) {
	b, err := r.record()
	if err != nil {
		return nil, err
	}
	return JobOf(b)
}

// Of returns a result for a job that is not in the store yet.
func Of(j *cluster.Job, row *Row) Result {
	return Result{row, func() ([]byte, error) { return Record(j) }}
}

// View is the store as it is at one moment: what is appended later is not in it.
type View struct {
	s          *Store
	segs       []*segment
	entries    []entry
	from, upTo uint64 // of the entries
	floor      uint64
}

// UpTo returns the index up to which it has everything that ended, except for the
// holes.
func (v *View) UpTo() uint64 { return v.upTo }

// View returns a view of the store as it is.
func (s *Store) View() *View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return &View{s, s.segs, s.head.entries, s.head.from, s.head.upTo, s.floor}
}

// Holes returns the parts of the log whose ended jobs the view lacks.
func (v *View) Holes() []Span { return holesOf(v.floor, v.segs, v.from) }

// Scan calls yield with the jobs that the query selects, in order, until yield
// returns false or the limit is reached. A file that turns out to be damaged ends
// it with a *Damage: the caller continues after the last job that it was given, in
// another view.
func (v *View) Scan(q *Query, yield func(Result) bool) error {
	left := q.Limit
	each := func(r Result) bool {
		if !yield(r) {
			return false
		}
		left--
		return left != 0
	}
	if q.OldestFirst {
		for _, g := range v.segs {
			if on, err := v.s.scanSegment(g, q, each); !on || err != nil {
				return err
			}
		}
		scanHead(v.entries, q, each)
		return nil
	}
	if !scanHead(v.entries, q, each) {
		return nil
	}
	for _, g := range slices.Backward(v.segs) {
		if on, err := v.s.scanSegment(g, q, each); !on || err != nil {
			return err
		}
	}
	return nil
}

func scanHead(es []entry, q *Query, yield func(Result) bool) bool {
	for i := range es {
		e := &es[i]
		if !q.OldestFirst {
			e = &es[len(es)-1-i]
		}
		if q.Match(&e.row) && !yield(Result{&e.row, func() ([]byte, error) { return e.record, nil }}) {
			return false
		}
	}
	return true
}

func (s *Store) scanSegment(g *segment, q *Query, yield func(Result) bool) (bool, error) {
	if !q.may(g) {
		return true, nil
	}
	on, err := g.scan(q, yield)
	if err != nil {
		return on, s.found(g, err)
	}
	return on, nil
}

func (g *segment) scan(q *Query, yield func(Result) bool) (bool, error) {
	o, err := g.open()
	if err != nil {
		return true, err
	}
	defer o.close()
	if err := o.load(nil); err != nil {
		return true, err
	}
	hits, err := o.hits(q)
	if err != nil {
		return true, err
	}
	for _, h := range hits {
		var failed error
		on := yield(Result{&h.row, func() ([]byte, error) {
			b, err := o.record(h.at)
			failed = err
			return b, err
		}})
		if failed != nil || !on {
			return on, failed
		}
	}
	return true, nil
}

type hit struct {
	row Row
	at  int
}

// hits returns the rows that a query selects, in its order.
func (o *opened) hits(q *Query) ([]hit, error) {
	var out []hit
	pick := o.picker(q)
	for i := range o.n {
		if !pick(o.rows[i*rowBytes : (i+1)*rowBytes]) {
			continue
		}
		h := hit{at: i}
		if err := o.row(i, &h.row); err != nil {
			return nil, err
		}
		if q.Match(&h.row) {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b hit) int {
		if q.OldestFirst {
			return compareEnds(&a.row, &b.row)
		}
		return compareEnds(&b.row, &a.row)
	})
	return out, nil
}

// picker returns a cheap test of a stored row that passes everything the query may
// select.
func (o *opened) picker(q *Query) func([]byte) bool {
	le := binary.LittleEndian
	type test struct {
		off  int
		want map[uint32]struct{}
	}
	var tests []test
	for i, names := range [][]string{textAccount: q.Accounts, textPartition: q.Partitions, textName: q.Names} {
		if len(names) == 0 {
			continue
		}
		t := test{rowText + 4*i, map[uint32]struct{}{}}
		for k, s := range o.texts {
			if slices.Contains(names, s) {
				t.want[uint32(k)] = struct{}{}
			}
		}
		tests = append(tests, t)
	}
	var ids map[uint64]struct{}
	if len(q.IDs) > 0 {
		ids = map[uint64]struct{}{}
		for _, id := range q.IDs {
			ids[uint64(id)] = struct{}{}
		}
	}
	users := o.userPicker(q.Users)
	return func(b []byte) bool {
		if !users(b) || !q.times(cluster.Time(le.Uint64(b[offEnded:])), 0) {
			return false
		}
		for _, t := range tests {
			if _, ok := t.want[le.Uint32(b[t.off:])]; !ok {
				return false
			}
		}
		if ids == nil || le.Uint32(b[offTasks:]) > 1 {
			return true
		}
		_, own := ids[le.Uint64(b[offID:])]
		_, array := ids[le.Uint64(b[offArray:])]
		return own || array
	}
}

// userPicker matches the rows of users, by name or number.
func (o *opened) userPicker(users []string) func([]byte) bool {
	if len(users) == 0 {
		return func([]byte) bool { return true }
	}
	le := binary.LittleEndian
	names, uids := map[uint32]struct{}{}, map[uint32]struct{}{}
	for k, s := range o.texts {
		if slices.Contains(users, s) {
			names[uint32(k)] = struct{}{}
		}
	}
	for _, u := range users {
		if n, err := strconv.ParseUint(u, 10, 32); err == nil {
			uids[uint32(n)] = struct{}{}
		}
	}
	return func(b []byte) bool {
		_, byName := names[le.Uint32(b[rowText+4*textUser:])]
		_, byUID := uids[le.Uint32(b[offUID:])]
		return byName || byUID
	}
}

// Job returns a job by its id, or nil. One that stands for several tasks is found
// by the last of them. A *Damage is as in Scan.
func (s *Store) Job(id cluster.JobID) (*cluster.Job, error) {
	v := s.View()
	for i := range v.entries {
		if e := &v.entries[i]; e.row.ID == id {
			return JobOf(e.record)
		}
	}
	for _, g := range slices.Backward(v.segs) {
		if g.n == 0 || id < g.minID || id > g.maxID {
			continue
		}
		j, err := g.job(id)
		if err != nil {
			err = s.found(g, err)
		}
		if j != nil || err != nil {
			return j, err
		}
	}
	return nil, nil
}

func (g *segment) job(id cluster.JobID) (*cluster.Job, error) {
	o, err := g.open()
	if err != nil {
		return nil, err
	}
	defer o.close()
	i, err := o.find(id)
	if err != nil || i < 0 {
		return nil, err
	}
	b, err := o.record(i)
	if err != nil {
		return nil, err
	}
	return JobOf(b)
}

// Rows calls fn with all rows that the query selects, in no order. Reports are made
// from it: nothing is sorted and no record is read. After a *Damage, as in Scan, it
// must be started again.
func (v *View) Rows(q *Query, fn func(*Row)) error {
	for i := range v.entries {
		if r := &v.entries[i].row; q.Match(r) {
			fn(r)
		}
	}
	var buf []byte
	for _, g := range v.segs {
		if !q.may(g) {
			continue
		}
		var err error
		if buf, err = g.rows(q, buf, fn); err == nil {
			continue
		}
		if err = v.s.found(g, err); err != nil {
			return err
		}
	}
	return nil
}

func (g *segment) rows(q *Query, buf []byte, fn func(*Row)) ([]byte, error) {
	o, err := g.open()
	if err != nil {
		return buf, err
	}
	defer o.close()
	if err := o.load(buf); err != nil {
		return buf, err
	}
	pick := o.picker(q)
	var r Row
	for i := range o.n {
		if !pick(o.rows[i*rowBytes : (i+1)*rowBytes]) {
			continue
		}
		if err := o.row(i, &r); err != nil {
			return o.rows, err
		}
		if q.Match(&r) {
			fn(&r)
		}
	}
	return o.rows, nil
}

// Part is what a store has of a part of the log.
type Part struct {
	Span
	// Records are those of all jobs that ended in it, in order.
	Records [][]byte
}

// Read returns what there is after an index, at most about size bytes and no
// further than to: the first part of it that it has whole. ok is false if it has
// nothing of it.
func (s *Store) Read(after, to uint64, size int) (p Part, ok bool, err error) {
	v := s.View()
	for _, g := range v.segs {
		if g.to <= after {
			continue
		}
		if g.from >= to {
			return p, false, nil
		}
		p.Span = Span{max(after, g.from), min(to, g.to)}
		es, err := g.all()
		if err != nil {
			return p, false, cmp.Or(s.found(g, err), err)
		}
		p.fill(es, size)
		return p, true, nil
	}
	p.Span = Span{max(after, v.from), min(to, v.upTo)}
	if p.From >= p.To {
		return p, false, nil
	}
	p.fill(v.entries, size)
	return p, true, nil
}

// fill takes the records of the span until they are enough. It never splits what
// ended at one index.
func (p *Part) fill(es []entry, size int) {
	for i := range es {
		index := es[i].row.Index
		if index <= p.From || index > p.To {
			continue
		}
		if size <= 0 && len(p.Records) > 0 && es[i-1].row.Index != index {
			p.To = es[i-1].row.Index
			return
		}
		p.Records = append(p.Records, es[i].record)
		size -= len(es[i].record)
	}
}

// all reads a whole segment in the order of ends.
func (g *segment) all() ([]entry, error) {
	o, err := g.open()
	if err != nil {
		return nil, err
	}
	defer o.close()
	if err := o.load(nil); err != nil {
		return nil, err
	}
	es := make([]entry, g.n)
	for i := range es {
		if err := o.row(i, &es[i].row); err != nil {
			return nil, err
		}
		if es[i].record, err = o.record(i); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(es, func(a, b entry) int { return compareEnds(&a.row, &b.row) })
	return es, nil
}
