package cluster

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// PowerCap is how much power each GPU of a job may draw: watts, "250W", or a part of the
// card's default limit, "70%"; "" leaves the card as it is. "auto" is the cap at which a step
// takes the least energy, found while the job runs, which slows it down by DefaultSlowdown
// at most; "auto:8%" by 8 %. It is the search of Zeus (You et al., NSDI 2023), under the
// bound of GPOEO (Wang et al., 2022).
type PowerCap string

// AutoCap is the cap that is found.
const AutoCap PowerCap = "auto"

// DefaultSlowdown is how much slower a job may be with the cap that is found, in percent,
// where it says nothing; MaxSlowdown is the most that it may say.
const (
	DefaultSlowdown = 5
	MaxSlowdown     = 50
)

// Bounds of what may be asked for of a card, far beyond those of any: the agent keeps to
// the card's own.
const (
	MaxPowerCapW   = 10_000
	MaxGPUClockMHz = 10_000
)

// ParsePowerCap reads watts, as 250W or 250, a part of the card's default limit, as 70%, or
// auto, as it is or with a slowdown, auto:8%; "" is none. The error is an *Error of CodeInvalid.
func ParsePowerCap(text string) (PowerCap, error) {
	switch slow, with := strings.CutPrefix(text, string(AutoCap)+":"); {
	case text == "", text == string(AutoCap):
		return PowerCap(text), nil
	case with:
		percent, err := ParseSlowdown(slow)
		return autoCap(percent), err
	}
	digits, unit, most := text, "W", uint64(MaxPowerCapW)
	switch last := text[len(text)-1]; last {
	case '%':
		digits, unit, most = text[:len(text)-1], "%", 100
	case 'W', 'w':
		digits = text[:len(text)-1]
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n < 1 || n > most {
		return "", Errorf(CodeInvalid, "power_cap: %s is neither watts from 1 to %d, such as 250W, nor a part of the card's default limit from 1%% to 100%%, such as 70%%, nor auto", QuoteShort(text), MaxPowerCapW)
	}
	return PowerCap(strconv.FormatUint(n, 10) + unit), nil
}

// ParseSlowdown reads how much slower a job may be for a cap that is found, in percent of
// its steps in a time: 5% or 5. The error is an *Error of CodeInvalid.
func ParseSlowdown(text string) (percent int, err error) {
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "%"), 10, 8)
	if err != nil || n > MaxSlowdown {
		return 0, Errorf(CodeInvalid, "slowdown: %s is no percentage from 0%% to %d%%, such as 5%%", QuoteShort(text), MaxSlowdown)
	}
	return int(n), nil
}

// WithSlowdown is c with another slowdown, in percent. Only a cap that is found has one;
// another is an *Error of CodeInvalid.
func (c PowerCap) WithSlowdown(percent int) (PowerCap, error) {
	if _, found := c.Slowdown(); !found {
		return c, Errorf(CodeInvalid, "slowdown: is what a power cap that is found may cost; add --power-cap auto, or leave it out")
	}
	return autoCap(percent), nil
}

func autoCap(percent int) PowerCap {
	if percent == DefaultSlowdown {
		return AutoCap
	}
	return AutoCap + PowerCap(":"+strconv.Itoa(percent)+"%")
}

// Slowdown is how much slower a job may be with a cap that is found, in percent, and reports
// whether c is one.
func (c PowerCap) Slowdown() (percent int, found bool) {
	slow, with := strings.CutPrefix(string(c), string(AutoCap)+":")
	if !with {
		return DefaultSlowdown, c == AutoCap
	}
	percent, err := ParseSlowdown(slow)
	return percent, err == nil
}

// Watts is the cap on a card whose default limit is known, in watts: rounded down, and 0
// for none, for a part of what is not known, or for one that is to be found.
func (c PowerCap) Watts(defaultW int64) int64 {
	digits, part := strings.CutSuffix(string(c), "%")
	n, _ := strconv.ParseInt(strings.TrimSuffix(digits, "W"), 10, 64) // as ParsePowerCap wrote it
	if _, found := c.Slowdown(); found {
		return 0
	}
	if part {
		return defaultW * n / 100
	}
	return n
}

// GPUFreq is the clock of each GPU of a job: MHz, as "1200", or one of the words of
// Slurm's --gpu-freq; "" leaves it to the card.
type GPUFreq string

// The words for a clock of those that the card has, as in srun(1): the lowest, the one in
// the middle, the highest, and the one below that.
const (
	FreqLow    GPUFreq = "low"
	FreqMedium GPUFreq = "medium"
	FreqHigh   GPUFreq = "high"
	FreqHighM1 GPUFreq = "highm1"
)

// ParseGPUFreq reads MHz or one of the words, in any case; "" is none. A clock of the
// card's memory is refused. The error is an *Error of CodeInvalid.
func ParseGPUFreq(text string) (GPUFreq, error) {
	switch f := GPUFreq(strings.ToLower(text)); {
	case f == "", f == FreqLow, f == FreqMedium, f == FreqHigh, f == FreqHighM1:
		return f, nil
	case strings.Contains(string(f), "memory="):
		return "", Errorf(CodeInvalid, "gpu_freq: %s asks for a clock of the GPU's memory, which is left to the card; leave memory= out", QuoteShort(text))
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n < 1 || n > MaxGPUClockMHz {
		return "", Errorf(CodeInvalid, "gpu_freq: %s is neither MHz from 1 to %d, such as 1200, nor one of %s, %s, %s and %s", QuoteShort(text), MaxGPUClockMHz, FreqLow, FreqMedium, FreqHigh, FreqHighM1)
	}
	return GPUFreq(strconv.FormatUint(n, 10)), nil
}

// Choose picks of the clocks that a card has, in MHz and in any order, the one that is
// meant: for a number the nearest, and of two as near the higher. It is 0 for none.
func (f GPUFreq) Choose(clocks []int64) int64 {
	if f == "" || len(clocks) == 0 {
		return 0
	}
	has := slices.Compact(slices.Sorted(slices.Values(clocks)))
	top := len(has) - 1
	switch f {
	case FreqLow:
		return has[0]
	case FreqMedium:
		return has[top/2]
	case FreqHigh:
		return has[top]
	case FreqHighM1:
		return has[max(0, top-1)]
	}
	want, _ := strconv.ParseInt(string(f), 10, 64) // as ParseGPUFreq wrote it
	best := has[0]
	for _, c := range has {
		if max(c-want, want-c) <= max(best-want, want-best) {
			best = c
		}
	}
	return best
}

// GPUPower is what is asked of the power and the clock of GPUs. Both hold for a whole
// card, whoever is on it. The zero value leaves cards as they are.
type GPUPower struct {
	Cap  PowerCap
	Freq GPUFreq
}

// Or is p with what usual says where p says nothing.
func (p GPUPower) Or(usual GPUPower) GPUPower {
	return GPUPower{Cap: cmp.Or(p.Cap, usual.Cap), Freq: cmp.Or(p.Freq, usual.Freq)}
}

// Set takes over a cap and a clock as ParsePowerCap and ParseGPUFreq read them, nil for what
// stays as it is.
func (p *GPUPower) Set(most, freq *string) (err error) {
	if most != nil {
		if p.Cap, err = ParsePowerCap(*most); err != nil {
			return err
		}
	}
	if freq != nil {
		p.Freq, err = ParseGPUFreq(*freq)
	}
	return err
}

// Check reports whether p is as ParsePowerCap and ParseGPUFreq write it, else as an *Error
// of CodeInvalid.
func (p GPUPower) Check() error {
	watts, err := ParsePowerCap(string(p.Cap))
	if err != nil {
		return err
	}
	freq, err := ParseGPUFreq(string(p.Freq))
	if err == nil && (watts != p.Cap || freq != p.Freq) {
		err = Errorf(CodeInvalid, "power_cap %s, gpu_freq %s: want them written as %s and %s", QuoteShort(string(p.Cap)), QuoteShort(string(p.Freq)), QuoteShort(string(watts)), QuoteShort(string(freq)))
	}
	return err
}

// Power is what the attempt of a spec with these terms of its partition asks of the GPUs
// of one berth: what the spec says, and of the partition's what it leaves open, on whole
// cards alone.
func (b *Berth) Power(own, usual GPUPower) GPUPower {
	if len(b.GPUs) == 0 || slices.ContainsFunc(b.GPUs, func(g GPUShare) bool { return !g.Share.Exclusive }) {
		return GPUPower{}
	}
	return own.Or(usual)
}

// CardPower is what an attempt's agent did to the power and the clock of one card.
type CardPower struct {
	GPU GPUID
	// CapW and ClockMHz are what was set, 0 for nothing.
	CapW, ClockMHz int64
	// Why says in words what was not set as it was asked for, "" for nothing.
	Why string
}

// Slowed reports whether any card of an attempt was held to a power limit or a clock.
func (a *Attempt) Slowed() bool {
	return slices.ContainsFunc(a.Power, func(p CardPower) bool { return p.CapW > 0 || p.ClockMHz > 0 })
}

// MaxPowerWhy bounds CardPower.Why, in bytes.
const MaxPowerWhy = 200

// StepCost is what the steps of a job took that said how far it is, under one power cap.
type StepCost struct {
	// PerSecond is how many steps it took in a second, Joules what its cards drew for one,
	// all together.
	PerSecond, Joules float64
}

// CapSearch is what came of the search for the cap with the least energy for a step, of
// one attempt. The zero value is that nothing is known.
type CapSearch struct {
	// DefaultW is the limit of each card before, in watts, and CapW the one that it was
	// left with; both are 0 where none was found.
	DefaultW, CapW int64
	// Before is what steps took under DefaultW, and After under CapW.
	Before, After StepCost
	// Why says in words why there is none, "" where there is.
	Why string
}

// Sane reports whether s is what an agent may say.
func (s *CapSearch) Sane() bool {
	for _, f := range []float64{s.Before.PerSecond, s.Before.Joules, s.After.PerSecond, s.After.Joules} {
		if math.IsNaN(f) || f < 0 || f > maxStepCost {
			return false
		}
	}
	return s.CapW >= 0 && s.CapW <= s.DefaultW && s.DefaultW <= MaxPowerCapW && len(s.Why) <= MaxPowerWhy
}

// maxStepCost bounds steps in a second, and joules for a step.
const maxStepCost = 1e15

// FoundBefore is what the last attempt before a found, on cards of the same type, nil for
// nothing: where the search of a begins.
func (j *Job) FoundBefore(a *Attempt) *CapSearch {
	for i := len(j.Attempts) - 1; i >= 0; i-- {
		if b := &j.Attempts[i]; b.No < a.No && b.Search != nil && b.Search.CapW > 0 && b.Estimate.GPUType == a.Estimate.GPUType {
			return b.Search
		}
	}
	return nil
}
