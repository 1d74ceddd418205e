package interfere_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/model/interfere"
)

// pairsOf measures both jobs of n different pairs, whose speeds add up to sum.
func pairsOf(n int, sum float64, user func(i int) string) []interfere.Observation {
	var out []interfere.Observation
	for i := range n {
		// Thirteen jobs a side: no pair comes twice below 169 pairs.
		a := interfere.Job{Signature: fmt.Sprint("a", i%13), Util: 0.8, Bandwidth: 0.5}
		b := interfere.Job{Signature: fmt.Sprint("b", (i+i/13)%13), Util: 0.6, Bandwidth: 0.4}
		wobble := 0.02 * math.Sin(float64(i))
		out = append(out,
			interfere.Observation{GPUType: "Tesla K80", Mode: interfere.MPS, Job: a, Others: []interfere.Job{b}, Speed: 0.6*sum + wobble, User: user(i)},
			interfere.Observation{GPUType: "K80", Mode: interfere.MPS, Job: b, Others: []interfere.Job{a}, Speed: 0.4 * sum, User: user(i)})
	}
	return out
}

func TestAdvice(t *testing.T) {
	site := func(int) string { return "" }
	one := func(int) string { return "u" }
	three := func(i int) string { return fmt.Sprint("u", i%3) }
	bully := func(obs []interfere.Observation) []interfere.Observation {
		for i := range obs { // everybody beside the same job
			for _, j := range []*interfere.Job{&obs[i].Job, &obs[i].Others[0]} {
				if strings.HasPrefix(j.Signature, "a") {
					j.Signature = "a"
				} else {
					j.Signature = fmt.Sprint("b", i/2)
				}
			}
		}
		return obs
	}
	oneSide := func(obs []interfere.Observation) []interfere.Observation {
		var out []interfere.Observation
		for i := range obs {
			if i%2 == 0 {
				out = append(out, obs[i])
			}
		}
		return out
	}
	for _, tc := range []struct {
		name  string
		obs   []interfere.Observation
		pairs int
		want  interfere.Verdict
	}{
		{"nothing", nil, 0, interfere.Unsure},
		{"loses", pairsOf(40, 0.9, site), 40, interfere.Loses},
		{"gains", pairsOf(40, 1.2, site), 40, interfere.Gains},
		{"around one", pairsOf(40, 1.0, site), 40, interfere.Unsure},
		{"too few", pairsOf(19, 0.9, site), 19, interfere.Unsure},
		{"just enough", pairsOf(20, 0.9, site), 20, interfere.Loses},
		{"one user's word", pairsOf(40, 0.5, one), 7, interfere.Unsure},
		{"three users agree", pairsOf(40, 0.5, three), 21, interfere.Loses},
		{"one side only", oneSide(pairsOf(40, 0.9, site)), 0, interfere.Unsure},
		{"one job and everybody", bully(pairsOf(40, 0.9, site)), 7, interfere.Unsure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := interfere.Fit(tc.obs)
			a := m.Advice("tesla k80", interfere.MPS)
			if a.Verdict != tc.want || a.Pairs != tc.pairs || a.GPUType != "K80" || a.Mode != interfere.MPS {
				t.Errorf("got %+v, want %s of %d pairs on K80", a, tc.want, tc.pairs)
			}
			if o := m.Advice("K80", interfere.TimeSlicing); o.Pairs != 0 || o.Verdict != interfere.Unsure {
				t.Errorf("advice on another mode: %v", o)
			}
			if len(m.AllAdvice()) != min(1, tc.pairs) {
				t.Errorf("all advice: %v", m.AllAdvice())
			}
		})
	}
}

func TestAdviceNumbers(t *testing.T) {
	a := interfere.Fit(pairsOf(40, 0.9, func(int) string { return "" })).Advice("K80", interfere.MPS)
	want := "sharing loses on K80 with mps: speeds of two jobs add up to 0.90±0.00 (taking turns: 1) in 40 pairs of 26 jobs, 40 pairs below 1"
	if a.String() != want {
		t.Errorf("got  %s\nwant %s", a, want)
	}
}

// TestSamePair: two of the same job count as one pair.
func TestSamePair(t *testing.T) {
	j := interfere.Job{Signature: "a", Util: 0.5, Bandwidth: 0.1}
	o := interfere.Observation{GPUType: "K80", Mode: interfere.MPS, Job: j, Others: []interfere.Job{j}, Speed: 0.75}
	a := interfere.Fit([]interfere.Observation{o, o}).Advice("K80", interfere.MPS)
	if a.Pairs != 1 || a.Jobs != 1 || a.MeanSum != 1.5 {
		t.Errorf("got %+v, want one pair that adds up to 1.5", a)
	}
}
