package archive

import (
	"cmp"
	"context"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/history"
	"github.com/berth-scheduler/berth/coordinator/limit"
)

// stepRows is the number of rows of a report after which it yields to waiting
// requests.
const stepRows = 256

// Scan yields the finished jobs that a query selects: those that wait to be
// written, and those of the store. Damage found on the way is repaired, then read.
// whole means that nothing is missing.
func (a *Archive) Scan(ctx context.Context, q *history.Query, yield func(*cluster.Job) error) (whole bool, err error) {
	r := &reading{ctx: ctx, q: *q, left: q.Limit, yield: yield}
	for lost := false; ; {
		tail, view := a.present()
		err := r.once(tail, view)
		if err == nil {
			return !lost && view != nil && len(view.Holes()) == 0, nil
		}
		there, err := a.repaired(ctx, err)
		if err != nil {
			return false, err
		}
		lost = lost || !there
	}
}

// reading is a scan: it continues after the last job that was yielded.
type reading struct {
	ctx    context.Context
	q      history.Query
	left   int
	yield  func(*cluster.Job) error
	failed error
	done   bool
}

// each yields one job and reports whether to go on.
func (r *reading) each(x history.Result) bool {
	if r.failed = r.ctx.Err(); r.failed != nil {
		return false
	}
	var j *cluster.Job
	if j, r.failed = x.Job(); r.failed != nil {
		return false
	}
	r.q.Before = x.Row.Place()
	if j.Fold != nil && len(r.q.IDs) > 0 && !slices.ContainsFunc(r.q.IDs, func(id cluster.JobID) bool { return standsFor(j, id) }) {
		return true
	}
	r.failed = r.yield(j)
	r.left--
	r.done = r.left == 0
	return r.failed == nil && !r.done
}

// once reads what is there now. After a *history.Damage it may be called again.
func (r *reading) once(tail []*cluster.Job, view *history.View) error {
	q := r.q // its place stays fixed while this lasts
	q.Limit, r.failed = 0, nil
	fresh := func() bool {
		for i := range tail {
			j := tail[i]
			if !q.OldestFirst {
				j = tail[len(tail)-1-i]
			}
			if row := history.RowOf(j); q.Match(&row) && !r.each(history.Of(j, &row)) {
				return false
			}
		}
		return true
	}
	if !q.OldestFirst && !fresh() {
		return r.failed
	}
	if view != nil {
		if err := view.Scan(&q, r.each); err != nil {
			return err
		}
	}
	if r.failed == nil && q.OldestFirst && !r.done {
		fresh()
	}
	return r.failed
}

// standsFor reports whether an id means j, which stands for several tasks.
func standsFor(j *cluster.Job, id cluster.JobID) bool {
	return id == j.ArrayJobID || id > j.ArrayJobID && cluster.SpanHas(j.Fold, int(id-j.ArrayJobID))
}

// present returns the store as it is, and the jobs that ended after it: no job is
// in both or, except for holes, in neither.
func (a *Archive) present() (tail []*cluster.Job, view *history.View) {
	s := a.store.Load()
	if s == nil {
		return a.tail(0), nil
	}
	// In this order: what is released between the two is in the view.
	tail = a.tail(s.UpTo())
	view = s.View()
	return slices.DeleteFunc(tail, func(j *cluster.Job) bool { return j.Revision <= view.UpTo() }), view
}

// Report aggregates what a query selects, in a turn; whole is that of Scan.
func (a *Archive) Report(ctx context.Context, q *history.Query, by history.By, turn *limit.Turn) (sum *history.Report, whole bool, err error) {
	for lost := false; ; {
		sum = history.NewReport(by)
		tail, view := a.present()
		for _, j := range tail {
			if row := history.RowOf(j); q.Match(&row) {
				sum.Add(&row)
			}
		}
		if view == nil {
			return sum, false, nil
		}
		n := 0
		add := func(r *history.Row) {
			if n++; n%stepRows == 0 && turn.Step() != nil {
				return // the caller is gone, and so is the need for an answer
			}
			sum.Add(r)
		}
		if err = cmp.Or(view.Rows(q, add), ctx.Err()); err == nil {
			return sum, !lost && len(view.Holes()) == 0, nil
		}
		there, err := a.repaired(ctx, err)
		if err != nil {
			return nil, false, err
		}
		lost = lost || !there
	}
}
