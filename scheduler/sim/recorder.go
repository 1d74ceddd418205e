package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Bounds of what a recorder keeps, so that a long run stays drawable.
const (
	maxLevels = 4096
	maxBars   = 20_000
)

// level is the state of the fleet from a time on.
type level struct {
	at              time.Duration
	alloc, used, mm int64
	waiting         int
}

// bar is an attempt on one card.
type bar struct {
	job      string
	card     int
	from, to time.Duration
	how      cluster.JobState
}

// Recorder keeps what drawings need. It is an Observer of one run.
type Recorder struct {
	levels []level
	every  int // only each so many-th level is kept
	seen   int
	bars   []bar
	more   int // attempts that were not kept
	jct    []time.Duration
	first  map[string]time.Duration
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder { return &Recorder{every: 1, first: map[string]time.Duration{}} }

// Attempt implements Observer.
func (r *Recorder) Attempt(job string, cards []int, from, to time.Duration, how cluster.JobState) {
	if _, ok := r.first[job]; !ok {
		r.first[job] = from
	}
	if how == cluster.JobCompleted {
		r.jct = append(r.jct, to-r.first[job])
		delete(r.first, job)
	}
	for _, c := range cards {
		if len(r.bars) >= maxBars {
			r.more++
			continue
		}
		r.bars = append(r.bars, bar{job, c, from, to, how})
	}
}

// Level implements Observer. When there are too many, every second is left
// out from then on.
func (r *Recorder) Level(at time.Duration, allocated, used, memMiB int64, waiting int) {
	r.seen++
	if r.seen%r.every != 0 {
		return
	}
	r.levels = append(r.levels, level{at, allocated, used, memMiB, waiting})
	if len(r.levels) < maxLevels {
		return
	}
	half := r.levels[:0]
	for i := range r.levels {
		if i%2 == 1 {
			half = append(half, r.levels[i])
		}
	}
	r.levels, r.every = half, 2*r.every
}

// Drawings returns the run as SVG by kind: "gantt", "levels" and "runs".
func (r *Recorder) Drawings(f *Fleet, res *Result) map[string][]byte {
	return map[string][]byte{
		"gantt":  r.gantt(f, res),
		"levels": r.drawLevels(f, res),
		"runs":   r.cdf(res),
	}
}

// drawnCards bounds the rows of a Gantt chart.
const drawnCards = 64

func (r *Recorder) gantt(f *Fleet, res *Result) []byte {
	rows := min(f.GPUs(), drawnCards)
	d := newDrawing(fmt.Sprintf("%s on %s: cards over time", res.Policy, res.Trace), 960, 60+12*rows)
	end := time.Duration(1)
	for _, b := range r.bars {
		end = max(end, b.to)
	}
	d.axes(fmt.Sprintf("hours (attempts of the first %d cards; dark is who ran out of memory or was preempted)", rows), end.Hours(), "", float64(rows))
	lanes := map[int][]time.Duration{}
	slices.SortStableFunc(r.bars, func(a, b bar) int { return int(min(1, max(-1, a.from-b.from))) })
	for _, b := range r.bars {
		if b.card >= rows {
			continue
		}
		lane := freeLane(lanes, b)
		d.bar(b.from.Hours(), b.to.Hours(), float64(b.card)+float64(lane)/3, 1.0/3, colourOf(b), b.job)
	}
	return d.bytes()
}

// freeLane finds a third of a card's row that is free for an attempt.
func freeLane(lanes map[int][]time.Duration, b bar) int {
	l := lanes[b.card]
	for i := range l {
		if l[i] <= b.from {
			l[i] = b.to
			return min(i, 2)
		}
	}
	lanes[b.card] = append(l, b.to)
	return min(len(l), 2)
}

func colourOf(b bar) string {
	if b.how != cluster.JobCompleted {
		return "#333333"
	}
	n := 0
	for _, c := range b.job {
		n = n*31 + int(c)
	}
	return palette(n)
}

func (r *Recorder) drawLevels(f *Fleet, res *Result) []byte {
	d := newDrawing(fmt.Sprintf("%s on %s: the fleet over time", res.Policy, res.Trace), 960, 360)
	end := 1e-9
	if n := len(r.levels); n > 0 {
		end = r.levels[n-1].at.Hours()
	}
	d.axes("hours", end, "% of all cards", 100)
	all := float64(max(1, f.GPUs())) * cluster.WholeGPU
	var alloc, used [][2]float64
	for _, l := range r.levels {
		alloc = append(alloc, [2]float64{l.at.Hours(), 100 * float64(l.alloc) / all})
		used = append(used, [2]float64{l.at.Hours(), 100 * float64(l.used) / all})
	}
	d.steps(alloc, palette(0), "given away")
	d.steps(used, palette(1), "busy")
	return d.bytes()
}

func (r *Recorder) cdf(res *Result) []byte {
	d := newDrawing(fmt.Sprintf("%s on %s: from first start to end", res.Policy, res.Trace), 640, 360)
	jct := slices.Sorted(slices.Values(r.jct))
	end := time.Duration(1)
	if len(jct) > 0 {
		end = jct[len(jct)-1]
	}
	d.axes("hours", end.Hours(), "% of jobs", 100)
	var line [][2]float64
	for i, v := range jct {
		line = append(line, [2]float64{v.Hours(), 100 * float64(i+1) / float64(len(jct))})
	}
	d.steps(line, palette(0), "")
	return d.bytes()
}

// Bars draws one bar a result of a figure that the name says.
func Bars(title, unit string, names []string, values []float64) []byte {
	d := newDrawing(title, 640, 60+24*len(names))
	most := 1e-9
	for _, v := range values {
		most = max(most, v)
	}
	d.axes(unit, most, "", float64(len(names)))
	for i, v := range values {
		d.bar(0, v, float64(i)+0.1, 0.8, palette(i), "")
		d.label(fmt.Sprintf("%s %.4g", names[i], v), float64(i)+0.65)
	}
	return d.bytes()
}
