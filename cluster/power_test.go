package cluster

import (
	"strings"
	"testing"
)

func TestPowerCap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		want  PowerCap
		watts int64 // of a card of 350 W
	}{
		{"", "", 0}, {"250", "250W", 250}, {"250W", "250W", 250}, {"0250w", "250W", 250}, {"1W", "1W", 1}, {"10000", "10000W", 10_000},
		{"70%", "70%", 245}, {"1%", "1%", 3}, {"100%", "100%", 350}, {"33%", "33%", 115},
	} {
		got, err := ParsePowerCap(c.text)
		if err != nil || got != c.want || got.Watts(350) != c.watts {
			t.Errorf("%q is read as %q, %d W: %v", c.text, got, got.Watts(350), err)
		}
		if again, err := ParsePowerCap(string(got)); err != nil || again != got {
			t.Errorf("%q is written as %q and then read as %q: %v", c.text, got, again, err)
		}
	}
	for _, bad := range []string{"0", "0W", "-1", "-250W", "+250", "10001", "1000000000", "1000000000W", "0%", "101%", "-1%", "70.5%", "fast", "NaN", "Inf", "1e3", "250 W", "250WW", "W", "%", "0x10", "250kW", "99999999999999999999", "\xff"} {
		if got, err := ParsePowerCap(bad); err == nil || !strings.Contains(err.Error(), "power_cap: ") || !strings.Contains(err.Error(), "from 1 to 10000, such as 250W") {
			t.Errorf("%q is read as %q, %v", bad, got, err)
		}
	}
}

func TestGPUFreq(t *testing.T) {
	t.Parallel()
	clocks := []int64{600, 1410, 1200, 1410, 210}
	for _, c := range []struct {
		text string
		want GPUFreq
		mhz  int64
	}{
		{"", "", 0}, {"low", FreqLow, 210}, {"Medium", FreqMedium, 600}, {"HIGH", FreqHigh, 1410}, {"highm1", FreqHighM1, 1200},
		{"1200", "1200", 1200}, {"01300", "1300", 1200}, {"1305", "1305", 1410}, {"1306", "1306", 1410}, {"1", "1", 210}, {"10000", "10000", 1410},
	} {
		got, err := ParseGPUFreq(c.text)
		if err != nil || got != c.want || got.Choose(clocks) != c.mhz {
			t.Errorf("%q is read as %q and chooses %d: %v", c.text, got, got.Choose(clocks), err)
		}
	}
	for _, bad := range []string{"0", "-1", "10001", "1000000000", "fast", "NaN", "highm2", "1200MHz", "1200,memory=high", "memory=1215", "1.5", "+1200"} {
		got, err := ParseGPUFreq(bad)
		if err == nil || !strings.Contains(err.Error(), "gpu_freq: ") || strings.Contains(bad, "memory") != strings.Contains(err.Error(), "leave memory= out") {
			t.Errorf("%q is read as %q, %v", bad, got, err)
		}
	}
	if one := []int64{900}; FreqHighM1.Choose(one) != 900 || FreqMedium.Choose(one) != 900 || FreqLow.Choose(nil) != 0 {
		t.Error("of one clock, or of none")
	}
}

// TestPowerNeedsWholeGPUs: what holds for a whole card is for whom the whole card is.
func TestPowerNeedsWholeGPUs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		change     func(s *Spec)
	}{
		{"whole GPUs", "", func(s *Spec) { s.Exclusive = true }},
		{"whole nodes", "", func(s *Spec) { s.Where = &Where{Whole: true} }},
		{"a share", "power_cap: applies to a whole GPU and would slow down other jobs on it; add --exclusive", func(*Spec) {}},
		{"a share, for its clock", "gpu_freq: applies to a whole GPU", func(s *Spec) { s.Power = GPUPower{Freq: "low"} }},
		{"no GPUs", "power_cap and gpus", func(s *Spec) { s.GPUs = 0 }},
		{"no watts", "power_cap: ", func(s *Spec) { s.Exclusive, s.Power.Cap = true, "0W" }},
		{"written another way", "want them written as", func(s *Spec) { s.Exclusive, s.Power.Cap = true, "250" }},
		{"a word that is none", "gpu_freq: ", func(s *Spec) { s.Exclusive, s.Power.Freq = true, "fast" }},
	} {
		s := &Spec{Name: "x", Command: []string{"x"}, GPUs: 1, Power: GPUPower{Cap: "250W"}}
		c.change(s)
		if err := s.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestPartitionsPowerIsForWholeGPUs, by what was granted and not by what was asked for;
// what a job says itself wins, each by itself.
func TestPartitionsPowerIsForWholeGPUs(t *testing.T) {
	t.Parallel()
	whole := GPUShare{GPU: "a", Share: Share{MemMiB: 100, Milli: WholeGPU, Exclusive: true}}
	part := GPUShare{GPU: "b", Share: Share{MemMiB: 10, Milli: 100}}
	usual, own := GPUPower{Cap: "70%", Freq: "low"}, GPUPower{Cap: "250W"}
	for _, c := range []struct {
		gpus      []GPUShare
		own, want GPUPower
	}{
		{[]GPUShare{whole}, GPUPower{}, usual},
		{[]GPUShare{whole}, own, GPUPower{Cap: "250W", Freq: "low"}},
		{[]GPUShare{part}, GPUPower{}, GPUPower{}},
		{[]GPUShare{whole, part}, own, GPUPower{}},
		{nil, own, GPUPower{}},
	} {
		if got := (&Berth{GPUs: c.gpus}).Power(c.own, usual); got != c.want {
			t.Errorf("%v with %v: %v", c.gpus, c.own, got)
		}
	}
	p := Partition{Name: "p", Nodes: mustHosts(t, "n1"), Power: GPUPower{Cap: "0%"}}
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "power_cap") {
		t.Errorf("a partition: %v", err)
	}
}

func FuzzPower(f *testing.F) {
	for _, s := range []string{"250W", "70%", "1200", "highm1", "memory=high", "-0%", "NaN"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ParsePowerCap(text); err == nil && (GPUPower{Cap: c}.Check() != nil || c != "" && (c.Watts(10_000) < 1 || c.Watts(10_000) > MaxPowerCapW)) {
			t.Errorf("%q is taken as %q", text, c)
		}
		if q, err := ParseGPUFreq(text); err == nil && (GPUPower{Freq: q}.Check() != nil || q != "" && q.Choose([]int64{5}) != 5) {
			t.Errorf("%q is taken as %q", text, q)
		}
	})
}
