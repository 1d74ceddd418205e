package learner

import (
	"math"
	"slices"

	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/model"
)

const (
	// accuracyRuns is how many of the newest samples are used to measure prediction
	// accuracy.
	accuracyRuns = 256
	// driftRuns are compared with as many before them; driftLook samples are
	// searched for both. An error below driftFloor is good, however it grew.
	driftRuns  = 32
	driftLook  = 8 * driftRuns
	driftFloor = 0.05
)

// Accuracy compares what was predicted at placement with what was measured. Errors
// are relative.
type Accuracy struct {
	Memory, Util, Time Errors
	WithinP95          float64 // share of the runs in Memory
	OutOfMemory        int     // runs that ended because they ran out of memory
}

// Errors are the relative errors of one figure.
type Errors struct {
	Runs         int
	Mean, Median float64
}

// Accuracy returns that of the newest runs.
func (l *Learner) Accuracy() Accuracy { return measure(l.fsm.NewestSamples(accuracyRuns)) }

// measure compares samples. Declarations by users are no predictions, and neither
// is a whole GPU for want of knowledge.
func measure(samples []fsm.Sample) Accuracy {
	var a Accuracy
	var mem, util, secs []float64
	within := 0
	for i := range samples {
		s := &samples[i]
		if s.Censored {
			a.OutOfMemory++
			continue
		}
		if !predicted(s) {
			continue
		}
		if predictedMemory(s) {
			mem = append(mem, relative(float64(s.Predicted.GPUMemMiB), float64(s.GPUMemPeakMiB)))
			if s.GPUMemPeakMiB <= s.Predicted.GPUMemP95MiB {
				within++
			}
		}
		if s.Milli > 0 && s.Predicted.Milli > 0 {
			util = append(util, relative(float64(s.Predicted.Milli), float64(s.Milli)))
		}
		if s.Duration > 0 && s.Predicted.Duration > 0 {
			secs = append(secs, relative(s.Predicted.Duration.Seconds(), s.Duration.Seconds()))
		}
	}
	a.Memory, a.Util, a.Time = summarize(mem), summarize(util), summarize(secs)
	if len(mem) > 0 {
		a.WithinP95 = float64(within) / float64(len(mem))
	}
	return a
}

// predicted reports whether the predictor knew the job. The source is that of the
// memory; if that is declared or unknown the rest mostly is, too.
func predicted(s *fsm.Sample) bool {
	source := model.Source(s.Predicted.Source)
	return source != "" && source != model.SourceDeclared && source != model.SourceNone
}

func predictedMemory(s *fsm.Sample) bool {
	return !s.Censored && s.GPUMemPeakMiB > 0 && s.Predicted.GPUMemMiB > 0 && predicted(s)
}

func relative(predicted, actual float64) float64 { return math.Abs(predicted-actual) / actual }

func summarize(errs []float64) Errors {
	e := Errors{Runs: len(errs)}
	if e.Runs == 0 {
		return e
	}
	slices.Sort(errs)
	for _, v := range errs {
		e.Mean += v / float64(e.Runs)
	}
	e.Median = (errs[(e.Runs-1)/2] + errs[e.Runs/2]) / 2
	return e
}

// drifted reports whether the median memory error of the newest runs is more than
// twice that of as many before them. samples come oldest first.
func drifted(samples []fsm.Sample) bool {
	var errs []float64 // newest first
	for i := len(samples) - 1; i >= 0 && len(errs) < 2*driftRuns; i-- {
		if s := &samples[i]; predictedMemory(s) {
			errs = append(errs, math.Abs(math.Log(float64(s.Predicted.GPUMemMiB)/float64(s.GPUMemPeakMiB))))
		}
	}
	if len(errs) < 2*driftRuns {
		return false
	}
	now, before := summarize(errs[:driftRuns]).Median, summarize(errs[driftRuns:]).Median
	return now > driftFloor && now > 2*before
}
