package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

type cardPowerView struct {
	Node     string `json:"node"`
	Index    uint32 `json:"index"`
	UUID     string `json:"uuid"`
	CapW     int64  `json:"cap_w"`     // 0 when none was set
	ClockMHz int64  `json:"clock_mhz"` // likewise
	Why      string `json:"why"`
}

func viewPower(in []*apiv1.CardPower) (out []cardPowerView) {
	for _, p := range in {
		out = append(out, cardPowerView{p.GetNode(), p.GetIndex(), p.GetUuid(), p.GetCapW(), p.GetClockMhz(), p.GetWhy()})
	}
	return out
}

// PowerText says how the power and clock of an attempt's GPUs were set, equal
// ones together; "" for nothing.
func PowerText(cards []*apiv1.CardPower) string {
	var words []string
	on := map[string][]string{} // by word
	for _, p := range slices.SortedStableFunc(slices.Values(cards), byPlace) {
		var set []string
		if p.GetCapW() > 0 {
			set = append(set, fmt.Sprintf("cap %d W", p.GetCapW()))
		}
		if p.GetClockMhz() > 0 {
			set = append(set, fmt.Sprintf("clock %d MHz", p.GetClockMhz()))
		}
		word := cmp.Or(strings.Join(set, ", "), "as it was") + "\x00" + p.GetWhy()
		if on[word] == nil {
			words = append(words, word)
		}
		if last := len(on[word]) - 1; last >= 0 && strings.HasPrefix(on[word][last], p.GetNode()+":") {
			on[word][last] += fmt.Sprintf(",%d", p.GetIndex())
			continue
		}
		on[word] = append(on[word], fmt.Sprintf("%s:%d", p.GetNode(), p.GetIndex()))
	}
	for i, word := range words {
		set, why, _ := strings.Cut(word, "\x00")
		if words[i] = set + " on " + strings.Join(on[word], " "); why != "" {
			words[i] += " (" + why + ")"
		}
	}
	return strings.Join(words, "; ")
}

func byPlace(a, b *apiv1.CardPower) int {
	return cmp.Or(strings.Compare(a.GetNode(), b.GetNode()), cmp.Compare(a.GetIndex(), b.GetIndex()))
}

type capSearchView struct {
	DefaultW      int64   `json:"default_w"`
	CapW          int64   `json:"cap_w"`
	StepsBefore   float64 `json:"steps_per_second_before"`
	JoulesBefore  float64 `json:"joules_per_step_before"`
	StepsPerS     float64 `json:"steps_per_second"`
	JoulesPerStep float64 `json:"joules_per_step"`
	Why           string  `json:"why"`
}

func viewSearch(s *apiv1.CapSearch) *capSearchView {
	if s == nil {
		return nil
	}
	return &capSearchView{s.GetDefaultW(), s.GetCapW(), s.GetStepsBefore(), s.GetJoulesBefore(), s.GetStepsAfter(), s.GetJoulesAfter(), s.GetWhy()}
}

// SearchText gives the result of the search for the power cap of a job's last
// attempt, "" if there was none.
func SearchText(j *apiv1.Job) string {
	as := j.GetAttempts()
	if console.Waiting(j.GetState()) || len(as) == 0 {
		return ""
	}
	s := as[len(as)-1].GetSearch()
	_, auto := cluster.PowerCap(j.GetSpec().GetPowerCap()).Slowdown()
	switch {
	case s == nil && auto && len(as[len(as)-1].GetParts()) > 0:
		return "none: it runs on several nodes"
	case s == nil && auto && j.GetState() == cluster.JobRunning.String():
		return "being searched for"
	case s == nil:
		return ""
	case s.GetWhy() != "":
		return "none found: " + s.GetWhy()
	}
	before := fmt.Sprintf("%s steps/s and %s J per step at %d W", three(s.GetStepsBefore()), three(s.GetJoulesBefore()), s.GetDefaultW())
	if s.GetCapW() == s.GetDefaultW() {
		return "none is better: " + before
	}
	return fmt.Sprintf("%d W found: %s steps/s and %s J per step, against %s", s.GetCapW(), three(s.GetStepsAfter()), three(s.GetJoulesAfter()), before)
}

// three formats a number with three significant digits.
func three(x float64) string {
	if x >= 100 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}
