package eval

import (
	"math"
)

// Report is the machine-readable result: JSON and YAML use these names.
type Report struct {
	Results []Line `json:"results"`
}

// Line is one result. Errors and shares are in percent; RMSE is in MiB, percent of
// a GPU or milliseconds, RMSLE has no unit. Figures that do not apply to the target
// are null.
type Line struct {
	Dataset     string   `json:"dataset"`
	Target      string   `json:"target"`
	Split       string   `json:"split"`
	Trainer     string   `json:"trainer"`
	N           int      `json:"n"`
	MAPE        *float64 `json:"mape"`
	MedianAPE   *float64 `json:"median_ape"`
	P90APE      *float64 `json:"p90_ape"`
	RMSE        *float64 `json:"rmse"`
	RMSLE       *float64 `json:"rmsle"`
	Under       *float64 `json:"under"`
	P95Coverage *float64 `json:"p95_coverage"`
	P95Waste    *float64 `json:"p95_waste"`
	OOMRate     *float64 `json:"oom_rate"`
	TrainedN    int      `json:"trained_n"`
	Censored    int      `json:"censored"`
	Skipped     int      `json:"skipped"`
}

// Line returns the figures of a result.
func (r *Result) Line() Line {
	s := &r.scores
	return Line{
		Dataset: r.Dataset, Target: string(r.Target), Split: string(r.Split), Trainer: r.Trainer, N: s.n,
		MAPE: rounded(100 * s.mape), MedianAPE: rounded(100 * s.median), P90APE: rounded(100 * s.p90),
		RMSE: rounded(s.rmse), RMSLE: rounded(s.rmsle), Under: rounded(100 * s.under),
		P95Coverage: rounded(100 * s.coverage), P95Waste: rounded(100 * s.waste), OOMRate: rounded(100 * s.oom),
		TrainedN: r.TrainedN, Censored: r.Censored, Skipped: r.Skipped,
	}
}

// rounded keeps four decimals, so that reports are the same on all machines; nil
// means no figure.
func rounded(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	v = math.Round(v*1e4) / 1e4
	return &v
}

// NewReport converts results to a report.
func NewReport(rs []Result) Report {
	out := Report{Results: make([]Line, len(rs))}
	for i := range rs {
		out.Results[i] = rs[i].Line()
	}
	return out
}
