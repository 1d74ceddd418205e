package scheduler

import "math/bits"

// bitset is a set of small integers.
type bitset []uint64

func (b bitset) add(i int)    { b[i/64] |= 1 << (i % 64) }
func (b bitset) remove(i int) { b[i/64] &^= 1 << (i % 64) }

// next returns the least member at or above i, or -1.
func (b bitset) next(i int) int {
	for w := i / 64; w < len(b); w++ {
		v := b[w]
		if w == i/64 {
			v &= ^uint64(0) << (i % 64)
		}
		if v != 0 {
			return w*64 + bits.TrailingZeros64(v)
		}
	}
	return -1
}
