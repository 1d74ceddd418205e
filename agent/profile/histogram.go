package profile

import "math"

// bins is the number of counters in a histogram. The first counts exactly 0, the others divide
// 1 to 1000 evenly.
const bins = 32

// BinMilli is the width of a bin in thousandths: no quantile is further than this from the true
// one.
const BinMilli = (1000 + bins - 2) / (bins - 1)

// histogram counts utilizations of 0 to 1000 thousandths in 64 bytes. When a counter is full,
// all are halved, which keeps their proportions.
type histogram [bins]uint16

// add counts milli, clamped, weight times.
func (h *histogram) add(milli, weight int64) {
	i := 0
	if milli > 0 {
		i = 1 + int((min(milli, 1000)-1)*(bins-1)/1000)
	}
	weight = min(weight, math.MaxUint16/2)
	for int64(h[i])+weight > math.MaxUint16 {
		for k := range h {
			h[k] /= 2
		}
	}
	h[i] += uint16(weight)
}

// quantile returns the value below or at which the given thousandths of the counts lie, 0 if
// nothing was counted.
func (h *histogram) quantile(milli int64) int64 {
	total := int64(0)
	for _, n := range h {
		total += int64(n)
	}
	rank, below := (total*milli+999)/1000, int64(0)
	for i, n := range h {
		if below+int64(n) < rank || n == 0 {
			below += int64(n)
			continue
		}
		if i == 0 {
			return 0
		}
		low, high := int64(i-1)*1000/(bins-1), int64(i)*1000/(bins-1)
		return low + (high-low)*(rank-below)/int64(n)
	}
	return 0
}
