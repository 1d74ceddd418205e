// Package progress reads the progress that jobs report. Each attempt has a file, owned by its
// user, in a directory of root's; the variable BERTH_PROGRESS names it. A job writes lines of
// JSON to it, appended or each replacing the last:
//
//	{"step": 120, "total": 1000}
//
// The last line counts. Of other keys, which are the job's own, the one that is the metric of
// its study is reported, too. Any other line is ignored. The file is truncated when it has
// grown large, so that a job which adds lines for days fills no disk.
package progress

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const (
	// lineBytes is the maximum length of a line, and largeBytes the size from which the file is
	// truncated.
	lineBytes  = 4 << 10
	largeBytes = 1 << 20
	// window is the longest time over which the duration of a step is measured.
	window = 10 * time.Minute
)

// Feed reads the files of a node's running attempts. It is safe for concurrent use.
type Feed struct {
	now func() time.Time

	mu    sync.Mutex
	feeds map[cluster.AttemptID]*feed
}

// feed is what one attempt reported.
type feed struct {
	path string
	// metric is the key whose value is reported, "" for none, and value its last value.
	metric   string
	maximize bool
	value    *float64
	best     float64
	bestStep int64
	mod      time.Time
	size     int64
	total    int64
	seen     []seen // oldest first, at most a window old except for one
}

type seen struct {
	at   time.Time
	step int64
}

// New returns a Feed that reads no files yet. now is the clock by which files change.
func New(now func() time.Time) *Feed {
	return &Feed{now: now, feeds: map[cluster.AttemptID]*feed{}}
}

// Begin starts to read an attempt's file, and in it the values of a metric, "" for none;
// maximize says whether more of it is better.
func (f *Feed) Begin(id cluster.AttemptID, path, metric string, maximize bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.feeds[id] == nil {
		f.feeds[id] = &feed{path: path, metric: metric, maximize: maximize}
	}
}

// End forgets an attempt.
func (f *Feed) End(id cluster.AttemptID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.feeds, id)
}

// Steps returns the reported progress of an attempt now, nil if it reported none.
func (f *Feed) Steps(id cluster.AttemptID) *nodev1.Steps {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.feeds[id]
	if e == nil {
		return nil
	}
	e.look()
	return e.steps(f.now())
}

// Last returns the step that an attempt reported last, and when, and whether it reported any.
func (f *Feed) Last(id cluster.AttemptID) (step int64, at time.Time, said bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.feeds[id]
	if e == nil {
		return 0, time.Time{}, false
	}
	if e.look(); len(e.seen) == 0 {
		return 0, time.Time{}, false
	}
	last := e.seen[len(e.seen)-1]
	return last.step, last.at, true
}

// Add adds the progress of attempts to their usage, including attempts that have used nothing.
func (f *Feed) Add(uses []*nodev1.AttemptUse) []*nodev1.AttemptUse {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, by := f.now(), map[cluster.AttemptID]*nodev1.AttemptUse{}
	for _, u := range uses {
		by[cluster.AttemptID{Job: cluster.JobID(u.Job), No: u.Attempt}] = u
	}
	for id, e := range f.feeds {
		e.look()
		s := e.steps(now)
		if s == nil {
			continue
		}
		u := by[id]
		if u == nil {
			u = &nodev1.AttemptUse{Job: uint64(id.Job), Attempt: id.No}
			uses = append(uses, u)
		}
		u.Steps = s
	}
	return uses
}

// look reads the file again if it has changed.
func (e *feed) look() {
	// Only root can put another file in its place: it is enough to check its location, and that
	// it is a regular file.
	f, err := os.OpenFile(e.path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() == e.size && st.ModTime().Equal(e.mod) {
		return
	}
	e.size, e.mod = st.Size(), st.ModTime()
	tail := make([]byte, min(e.size, 2*lineBytes))
	n, err := f.ReadAt(tail, e.size-int64(len(tail)))
	if err != nil && !errors.Is(err, io.EOF) {
		return
	}
	if e.size > largeBytes && f.Truncate(0) == nil {
		e.size = 0
	}
	if l, ok := last(tail[:n]); ok {
		e.add(l, e.mod)
	}
	if e.metric != "" {
		e.values(tail[:n])
	}
}

// line is one line of a file.
type line struct {
	Step  *int64 `json:"step"`
	Total int64  `json:"total"`
}

// last returns the last complete line that reports a step: the end may still be being written.
func last(tail []byte) (line, bool) {
	lines := bytes.Split(tail, []byte("\n"))
	for _, text := range slices.Backward(lines) {
		var l line
		if len(text) <= lineBytes && json.Unmarshal(text, &l) == nil && l.Step != nil && *l.Step >= 0 && *l.Step <= cluster.MaxStep {
			return l, true
		}
	}
	return line{}, false
}

// values takes the metric from lines that report a step: the last value, and the best of all.
func (e *feed) values(tail []byte) {
	for text := range bytes.SplitSeq(tail, []byte("\n")) {
		var l line
		var all map[string]json.RawMessage
		var v float64
		if len(text) > lineBytes || json.Unmarshal(text, &l) != nil || l.Step == nil || json.Unmarshal(text, &all) != nil {
			continue
		}
		if raw := all[e.metric]; raw == nil || string(raw) == "null" || json.Unmarshal(raw, &v) != nil {
			continue
		}
		if e.value == nil || v < e.best && !e.maximize || v > e.best && e.maximize {
			e.best, e.bestStep = v, min(max(*l.Step, 0), cluster.MaxStep)
		}
		e.value = &v
	}
}

// add records what was written at a time. If a job starts to count again, so does the
// measurement.
func (e *feed) add(l line, at time.Time) {
	e.total = min(max(l.Total, 0), cluster.MaxStep)
	if n := len(e.seen); n > 0 {
		switch {
		case *l.Step < e.seen[n-1].step:
			e.seen = e.seen[:0]
		case *l.Step == e.seen[n-1].step || !at.After(e.seen[n-1].at):
			return
		}
	}
	for len(e.seen) > 1 && at.Sub(e.seen[1].at) > window {
		e.seen = e.seen[1:]
	}
	if n := len(e.seen); n > 1 && e.seen[n-1].at.Sub(e.seen[n-2].at) < window/32 {
		e.seen = e.seen[:n-1] // the ones in between add nothing to those around them
	}
	e.seen = append(e.seen, seen{at, *l.Step})
}

// steps returns what was reported, or nil.
func (e *feed) steps(now time.Time) *nodev1.Steps {
	if len(e.seen) == 0 {
		return nil
	}
	first, last := e.seen[0], e.seen[len(e.seen)-1]
	s := &nodev1.Steps{Step: last.step, Total: e.total, AgoMs: max(0, now.Sub(last.at).Milliseconds()), Metric: e.value, Best: e.best, BestStep: e.bestStep}
	if n := last.step - first.step; n > 0 {
		s.StepUs = max(1, last.at.Sub(first.at).Microseconds()/n)
	}
	return s
}
