package cluster

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// PowerCap is how much power each GPU of a job may draw: watts, "250W", or a part of the
// card's default limit, "70%"; "" leaves the card as it is.
type PowerCap string

// Bounds of what may be asked for of a card, far beyond those of any: the agent keeps to
// the card's own.
const (
	MaxPowerCapW   = 10_000
	MaxGPUClockMHz = 10_000
)

// ParsePowerCap reads watts, as 250W or 250, or a part of the card's default limit, as
// 70%; "" is none. The error is an *Error of CodeInvalid.
func ParsePowerCap(text string) (PowerCap, error) {
	if text == "" {
		return "", nil
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
		return "", Errorf(CodeInvalid, "power_cap: %s is neither watts from 1 to %d, such as 250W, nor a part of the card's default limit from 1%% to 100%%, such as 70%%", QuoteShort(text), MaxPowerCapW)
	}
	return PowerCap(strconv.FormatUint(n, 10) + unit), nil
}

// Watts is the cap on a card whose default limit is known, in watts: rounded down, and 0
// for none or for a part of what is not known.
func (c PowerCap) Watts(defaultW int64) int64 {
	digits, part := strings.CutSuffix(string(c), "%")
	n, _ := strconv.ParseInt(strings.TrimSuffix(digits, "W"), 10, 64) // as ParsePowerCap wrote it
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
