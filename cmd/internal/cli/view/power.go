package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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

// PowerText says what was done to the power and clock of an attempt's GPUs, those with
// the same together; "" for nothing.
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
