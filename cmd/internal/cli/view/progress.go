package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// ProgressView is the JSON of an attempt's reported progress. Total and
// StepSeconds are 0 if unknown, and then Ends is null.
type ProgressView struct {
	At          *time.Time `json:"at"`
	Step        int64      `json:"step"`
	Total       int64      `json:"total"`
	StepSeconds float64    `json:"step_seconds"`
	Ends        *time.Time `json:"ends"`
}

func viewProgress(p *apiv1.Progress) *ProgressView {
	if p == nil {
		return nil
	}
	return &ProgressView{Stamp(p.GetAt()), p.GetStep(), p.GetTotal(), p.GetStepTime().AsDuration().Seconds(), Stamp(p.GetEnds())}
}

// ProgressText says how far a job is at a time: by the last report of its
// last attempt, extrapolated for as long as that is plausible; "" if it
// reported nothing.
func ProgressText(j *apiv1.Job, now time.Time) string {
	as := j.GetAttempts()
	if len(as) == 0 || as[len(as)-1].GetProgress() == nil {
		return ""
	}
	a := as[len(as)-1]
	p, runs := a.GetProgress(), a.GetEnded() == nil
	step, each, silent := p.GetStep(), p.GetStepTime().AsDuration(), now.Sub(p.GetAt().AsTime())
	about := ""
	if next := p.GetTotal() / 20; runs && each > 0 && next > 0 {
		if n := min(int64(silent/each), next); n > 0 { // coordinators are told of each twentieth
			step, about = min(step+n, p.GetTotal()), "about "
		}
	}
	of := []string{fmt.Sprintf("%sstep %s", about, grouped(step))}
	if p.GetTotal() > 0 {
		of[0] += fmt.Sprintf(" of %s (%d %%)", grouped(p.GetTotal()), step*100/p.GetTotal())
	}
	if each > 0 {
		of = append(of, eachText(each))
	}
	switch {
	case !runs:
	case each > 0 && silent > max(time.Minute, 3*each*time.Duration(max(1, p.GetTotal()/20))):
		of = append(of, "but nothing new for "+units.HumanDuration(silent.Truncate(time.Second)))
	case p.GetEnds() != nil && p.GetEnds().AsTime().After(now):
		of = append(of, "about "+units.HumanDuration(rough(p.GetEnds().AsTime().Sub(now)))+" left")
	}
	return strings.Join(of, ", ")
}

// rough rounds a duration to what can be known of it.
func rough(d time.Duration) time.Duration {
	switch {
	case d >= time.Hour:
		return d.Round(time.Minute)
	case d >= time.Minute:
		return d.Round(10 * time.Second)
	}
	return max(d.Round(time.Second), time.Second)
}

func eachText(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return units.HumanDuration(d.Round(time.Second)) + " a step"
	case d >= time.Second:
		return fmt.Sprintf("%.1f s per step", d.Seconds())
	}
	return fmt.Sprintf("%.3g ms per step", float64(d.Microseconds())/1000)
}

// grouped formats a number with thousands separated.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
