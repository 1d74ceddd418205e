// Package eval measures how well jobs' needs are predicted: it reads data sets of
// measured runs, splits them so that nothing that is scored was trained on, and
// compares trainers by the same figures. See DESIGN.md.
//
// Everything is deterministic: equal files and options give equal results.
package eval

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/model"
)

// Target is what is predicted.
type Target string

// The targets. MemorySummary is also peak memory, but of jobs of which only the
// figures of a model card are known: parameters, FLOPs, outputs of its matrix
// products, input size.
const (
	Memory        Target = "memory"
	MemorySummary Target = "memory_summary"
	Util          Target = "util"
	Time          Target = "time"
)

// Targets returns the targets in the order of reports.
func Targets() []Target { return []Target{Memory, MemorySummary, Util, Time} }

// ParseTarget parses a target or one of its synonyms; case, '-' and '_' do not
// matter.
func ParseTarget(s string) (Target, error) {
	switch plain(s) {
	case "memory", "mem", "gpumem", "gpumemory", "peakmem", "peakmemory":
		return Memory, nil
	case "memorysummary", "memsummary", "summary", "gpumemsummary":
		return MemorySummary, nil
	case "util", "utilization", "utilisation", "gpuutil", "gpuutilization", "gpuutilisation":
		return Util, nil
	case "time", "steptime", "duration", "seconds", "stepseconds":
		return Time, nil
	}
	return "", fmt.Errorf("target %q: must be one of memory, memory_summary, util, time", s)
}

func plain(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(strings.TrimSpace(s)))
}

func (t Target) memory() bool { return t == Memory || t == MemorySummary }

// Label is the kind of memory that a figure measures.
type Label string

// The kinds of memory. NVIDIASMI is the process's memory as NVML shows it,
// CUDA context included. Allocator is the peak of the framework's allocator,
// which is less.
const (
	NVIDIASMI Label = "nvidia-smi"
	Allocator Label = "allocator"
)

// Row is one measured run.
type Row struct {
	Dataset string
	Model   string
	Family  string
	GPU     string // normalized by gpuspec
	Label   Label
	// OffsetMiB is what Sample.PeakMiB includes in addition to the published
	// figure, so that all samples are comparable: the CUDA context, for an
	// Allocator label. Errors are measured without it.
	OffsetMiB int64
	// ID is equal for equal lines of equal data sets.
	ID uint64
	// Sample holds what was measured, 0 if it was not, and what was known before
	// the run.
	Sample model.Sample
}

// actual returns the published figure, 0 if it was not measured: MiB, percent of a
// GPU, or milliseconds per step.
func (r *Row) actual(t Target) float64 {
	switch t {
	case Util:
		return float64(r.Sample.UtilMilli) / 10
	case Time:
		if r.Sample.Steps < 1 {
			return 0
		}
		return 1e3 * r.Sample.Seconds / float64(r.Sample.Steps)
	default:
		return float64(r.Sample.PeakMiB - r.OffsetMiB)
	}
}

// Set is the rows of one data set for one target. Rows that a limit ended are
// Censored: they are not scored, but count in the OOM rate.
type Set struct {
	Dataset string
	Target  Target
	Rows    []Row
	// Skipped counts the lines that yield no row, by reason.
	Skipped map[string]int
}

// Censored returns the number of censored rows.
func (s *Set) Censored() int {
	n := 0
	for i := range s.Rows {
		if s.Rows[i].Sample.Censored {
			n++
		}
	}
	return n
}

// skippedTotal returns the number of lines that yielded no row.
func (s *Set) skippedTotal() int {
	n := 0
	for _, v := range s.Skipped {
		n += v
	}
	return n
}

// SkippedText says what was left out and why, most frequent first.
func (s *Set) SkippedText() string {
	reasons := slices.Sorted(maps.Keys(s.Skipped))
	slices.SortStableFunc(reasons, func(a, b string) int { return s.Skipped[b] - s.Skipped[a] })
	for i, r := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", s.Skipped[r], r)
	}
	return strings.Join(reasons, ", ")
}
