package history

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// By is what a report has a line for.
type By string

// The groupings of reports.
const (
	ByUser      By = "user"
	ByAccount   By = "account"
	ByPartition By = "partition"
	ByGPUType   By = "gpu-type"
)

// Valid reports whether b is one of them.
func (b By) Valid() bool {
	return b == ByUser || b == ByAccount || b == ByPartition || b == ByGPUType
}

func (b By) key(r *Row) string {
	switch b {
	case ByAccount:
		return r.Account
	case ByPartition:
		return r.Partition
	case ByGPUType:
		return r.GPUType
	}
	if r.User == "" {
		return strconv.FormatUint(uint64(r.UID), 10)
	}
	return r.User
}

// Line is one line of a report: sums over jobs.
type Line struct {
	Key  string
	Jobs int
	// Completed, Failed and Cancelled are of those; Failed is any other end.
	Completed, Failed, Cancelled int
	// See Row.
	Allocated, Measured, Used, Charged, Cores time.Duration
	// Idle is Measured of the jobs that used less than a part of it.
	Idle time.Duration
	// WaitP50 and WaitP95: half of the jobs that started, and nineteen of
	// twenty, waited no longer.
	WaitP50, WaitP95 time.Duration
}

// idlePart: a job that uses less than one in so many of its measured hours counts
// as idle. It is the 5 % used in idle policies.
const idlePart = 20

// Report adds up rows. Create it with NewReport.
type Report struct {
	by    By
	lines map[string]*sum
}

type sum struct {
	Line
	waits []uint32 // in milliseconds
}

// NewReport returns an empty report.
func NewReport(by By) *Report { return &Report{by, map[string]*sum{}} }

// Add adds a row.
func (p *Report) Add(r *Row) {
	key := p.by.key(r)
	l := p.lines[key]
	if l == nil {
		l = &sum{Line: Line{Key: key}}
		p.lines[key] = l
	}
	n := int(max(1, r.Tasks))
	l.Jobs += n
	switch r.State {
	case cluster.JobCompleted:
		l.Completed += n
	case cluster.JobCancelled:
		l.Cancelled += n
	default:
		l.Failed += n
	}
	l.Allocated += r.Allocated
	l.Measured += r.Measured
	l.Used += r.Used
	l.Charged += r.Charged
	l.Cores += r.Cores
	if r.Used < r.Measured/idlePart {
		l.Idle += r.Measured
	}
	if r.Started != 0 {
		l.waits = append(l.waits, clip[uint32](int64(r.Wait/time.Millisecond)))
	}
}

// Lines returns the sums, those with the most allocated GPU time first, and their
// total.
func (p *Report) Lines() (lines []Line, total Line) {
	var all []uint32
	for _, l := range p.lines {
		all = append(all, l.waits...)
		l.WaitP50, l.WaitP95 = quantiles(l.waits)
		lines = append(lines, l.Line)
		total.add(&l.Line)
	}
	total.WaitP50, total.WaitP95 = quantiles(all)
	slices.SortFunc(lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Allocated, a.Allocated), cmp.Compare(b.Cores, a.Cores), cmp.Compare(a.Key, b.Key))
	})
	return lines, total
}

func (l *Line) add(o *Line) {
	l.Jobs, l.Completed, l.Failed, l.Cancelled = l.Jobs+o.Jobs, l.Completed+o.Completed, l.Failed+o.Failed, l.Cancelled+o.Cancelled
	l.Allocated, l.Measured, l.Used = l.Allocated+o.Allocated, l.Measured+o.Measured, l.Used+o.Used
	l.Charged, l.Cores, l.Idle = l.Charged+o.Charged, l.Cores+o.Cores, l.Idle+o.Idle
}

func quantiles(waits []uint32) (p50, p95 time.Duration) {
	if len(waits) == 0 {
		return 0, 0
	}
	slices.Sort(waits)
	at := func(part int) time.Duration {
		return time.Duration(waits[(len(waits)*part+99)/100-1]) * time.Millisecond
	}
	return at(50), at(95)
}
