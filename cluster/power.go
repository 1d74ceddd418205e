package cluster

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// PowerCap is how much power each GPU of a job may draw: watts, "250W", or a
// fraction of the GPU's default limit, "70%"; "" leaves the GPU as it is. "auto" is
// the cap at which a step takes the least energy, found while the job runs, at a
// slowdown of at most DefaultSlowdown, or with "auto:8%" of 8 %. It is the search
// of Zeus (You et al., NSDI 2023), under the bound of GPOEO (Wang et al., 2022).
type PowerCap string

// AutoCap is the cap found by a search.
const AutoCap PowerCap = "auto"

// DefaultSlowdown is the slowdown in percent that a job tolerates from a searched
// cap unless it gives its own; MaxSlowdown is the highest it may give.
const (
	DefaultSlowdown = 5
	MaxSlowdown     = 50
)

// Bounds of the settings, far beyond those of any GPU: the agent keeps to the GPU's
// own.
const (
	MaxPowerCapW   = 10_000
	MaxGPUClockMHz = 10_000
)

// ParsePowerCap parses watts, as 250W or 250, a fraction of the GPU's default
// limit, as 70%, or auto, optionally with a slowdown, auto:8%; "" is none. The
// error is an *Error of CodeInvalid.
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
		return "", Errorf(CodeInvalid, "power_cap: %s is neither watts from 1 to %d, such as 250W, nor a part of the GPU's default limit from 1%% to 100%%, such as 70%%, nor auto", QuoteShort(text), MaxPowerCapW)
	}
	return PowerCap(strconv.FormatUint(n, 10) + unit), nil
}

// ParseSlowdown parses the slowdown that a job tolerates from a searched cap, in
// percent of its steps per unit of time: 5% or 5. The error is an *Error of
// CodeInvalid.
func ParseSlowdown(text string) (percent int, err error) {
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "%"), 10, 8)
	if err != nil || n > MaxSlowdown {
		return 0, Errorf(CodeInvalid, "slowdown: %s is not a percentage from 0%% to %d%%, such as 5%%", QuoteShort(text), MaxSlowdown)
	}
	return int(n), nil
}

// WithSlowdown returns c with another slowdown, in percent. Only a searched cap has
// one; any other c is an *Error of CodeInvalid.
func (c PowerCap) WithSlowdown(percent int) (PowerCap, error) {
	if _, found := c.Slowdown(); !found {
		return c, Errorf(CodeInvalid, "slowdown: applies only to an automatic power cap; add --power-cap auto, or leave it out")
	}
	return autoCap(percent), nil
}

func autoCap(percent int) PowerCap {
	if percent == DefaultSlowdown {
		return AutoCap
	}
	return AutoCap + PowerCap(":"+strconv.Itoa(percent)+"%")
}

// Slowdown returns the slowdown in percent that a searched cap allows, and whether
// c is one.
func (c PowerCap) Slowdown() (percent int, found bool) {
	slow, with := strings.CutPrefix(string(c), string(AutoCap)+":")
	if !with {
		return DefaultSlowdown, c == AutoCap
	}
	percent, err := ParseSlowdown(slow)
	return percent, err == nil
}

// Watts returns the cap in watts on a GPU with the given default limit, rounded
// down. It is 0 for no cap, for a fraction of an unknown limit, and for a searched
// cap.
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
// Slurm's --gpu-freq; "" leaves it to the GPU.
type GPUFreq string

// Words for one of the GPU's clocks, as in srun(1): the lowest, the middle one, the
// highest, and the one below that.
const (
	FreqLow    GPUFreq = "low"
	FreqMedium GPUFreq = "medium"
	FreqHigh   GPUFreq = "high"
	FreqHighM1 GPUFreq = "highm1"
)

// ParseGPUFreq parses MHz or one of the words, in any case; "" is none. A memory
// clock is refused. The error is an *Error of CodeInvalid.
func ParseGPUFreq(text string) (GPUFreq, error) {
	switch f := GPUFreq(strings.ToLower(text)); {
	case f == "", f == FreqLow, f == FreqMedium, f == FreqHigh, f == FreqHighM1:
		return f, nil
	case strings.Contains(string(f), "memory="):
		return "", Errorf(CodeInvalid, "gpu_freq: %s asks for a clock of the GPU's memory, which cannot be set; leave memory= out", QuoteShort(text))
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n < 1 || n > MaxGPUClockMHz {
		return "", Errorf(CodeInvalid, "gpu_freq: %s is neither MHz from 1 to %d, such as 1200, nor one of %s, %s, %s and %s", QuoteShort(text), MaxGPUClockMHz, FreqLow, FreqMedium, FreqHigh, FreqHighM1)
	}
	return GPUFreq(strconv.FormatUint(n, 10)), nil
}

// Choose picks the intended one of a GPU's clocks, given in MHz and in any order:
// for a number the nearest, preferring the higher of two. It is 0 for none.
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

// GPUPower holds the power and clock settings of GPUs. Both apply to a whole GPU,
// whoever uses it. The zero value leaves GPUs as they are.
type GPUPower struct {
	Cap  PowerCap
	Freq GPUFreq
}

// Or returns p, with the settings that it leaves open taken from usual.
func (p GPUPower) Or(usual GPUPower) GPUPower {
	return GPUPower{Cap: cmp.Or(p.Cap, usual.Cap), Freq: cmp.Or(p.Freq, usual.Freq)}
}

// Set sets the cap and clock as parsed by ParsePowerCap and ParseGPUFreq; nil
// leaves one unchanged.
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

// Check reports whether p is in the form that ParsePowerCap and ParseGPUFreq
// return, else an *Error of CodeInvalid.
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

// Power returns the settings that an attempt asks of the GPUs of one berth: own,
// the spec's, and for what those leave open usual, the partition's, on whole GPUs
// only.
func (b *Berth) Power(own, usual GPUPower) GPUPower {
	if len(b.GPUs) == 0 || slices.ContainsFunc(b.GPUs, func(g GPUShare) bool { return !g.Share.Exclusive }) {
		return GPUPower{}
	}
	return own.Or(usual)
}

// CardPower is what an attempt's agent did to the power and the clock of one GPU.
type CardPower struct {
	GPU GPUID
	// CapW and ClockMHz are what was set, 0 for nothing.
	CapW, ClockMHz int64
	// Why says in words which setting was not applied as asked, "" for none.
	Why string
}

// Slowed reports whether any GPU of an attempt was held to a power limit or a
// clock.
func (a *Attempt) Slowed() bool {
	return slices.ContainsFunc(a.Power, func(p CardPower) bool { return p.CapW > 0 || p.ClockMHz > 0 })
}

// MaxPowerWhy bounds CardPower.Why, in bytes.
const MaxPowerWhy = 200

// StepCost is the cost of the steps that a job reported under one power cap.
type StepCost struct {
	// PerSecond is the number of steps per second, Joules the energy of all its
	// GPUs together per step.
	PerSecond, Joules float64
}

// CapSearch is the result of one attempt's search for the cap with the least energy
// per step. The zero value means that nothing is known.
type CapSearch struct {
	// DefaultW is each GPU's previous limit in watts, and CapW the one that was
	// found and set; both are 0 if none was found.
	DefaultW, CapW int64
	// Before is the cost of steps under DefaultW, and After under CapW.
	Before, After StepCost
	// Why says in words why none was found, "" if one was.
	Why string
}

// Sane reports whether an agent may report s.
func (s *CapSearch) Sane() bool {
	for _, f := range []float64{s.Before.PerSecond, s.Before.Joules, s.After.PerSecond, s.After.Joules} {
		if math.IsNaN(f) || f < 0 || f > maxStepCost {
			return false
		}
	}
	return s.CapW >= 0 && s.CapW <= s.DefaultW && s.DefaultW <= MaxPowerCapW && len(s.Why) <= MaxPowerWhy
}

// maxStepCost bounds steps per second, and joules per step.
const maxStepCost = 1e15

// FoundBefore returns the result of the last attempt before a on GPUs of the same
// type, nil for none. The search of a begins there.
func (j *Job) FoundBefore(a *Attempt) *CapSearch {
	for i := len(j.Attempts) - 1; i >= 0; i-- {
		if b := &j.Attempts[i]; b.No < a.No && b.Search != nil && b.Search.CapW > 0 && b.Estimate.GPUType == a.Estimate.GPUType {
			return b.Search
		}
	}
	return nil
}
