package sim

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Limits on what a recorder keeps, so that a long run stays drawable.
const (
	maxLevels = 4096
	maxBars   = 20_000
)

// Level is the state of the fleet from a time on: thousandths of all GPUs allocated
// and busy, MiB of memory in use, and how many jobs wait.
type Level struct {
	At               time.Duration
	Alloc, Used, Mem int64
	Waiting          int
}

// Bar is an attempt on one GPU.
type Bar struct {
	Job      string
	Card     int
	From, To time.Duration
	How      cluster.JobState
}

// Recorder keeps what drawings need. It is an Observer of one run.
type Recorder struct {
	levels []Level
	every  int // one of so many levels is kept
	seen   int
	bars   []Bar
	more   int // attempts that were not kept
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder { return &Recorder{every: 1} }

// Bars returns the attempts in the order in which they ended, and how many
// more there were than are kept.
func (r *Recorder) Bars() (bars []Bar, more int) { return r.bars, r.more }

// Levels returns the states of the fleet in order of time.
func (r *Recorder) Levels() []Level { return r.levels }

// Attempt implements Observer.
func (r *Recorder) Attempt(job string, cards []int, from, to time.Duration, how cluster.JobState) {
	for _, c := range cards {
		if len(r.bars) >= maxBars {
			r.more++
			continue
		}
		r.bars = append(r.bars, Bar{job, c, from, to, how})
	}
}

// Level implements Observer. If there are too many, every second one is dropped
// from then on.
func (r *Recorder) Level(at time.Duration, allocated, used, memMiB int64, waiting int) {
	r.seen++
	if r.seen%r.every != 0 {
		return
	}
	r.levels = append(r.levels, Level{at, allocated, used, memMiB, waiting})
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
