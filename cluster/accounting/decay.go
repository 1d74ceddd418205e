package accounting

import (
	"math"
	"math/bits"
	"time"
)

// halvings are 2^(-1/2), 2^(-1/4), 2^(-1/8) … in units of 2^-64, rounded down.
// Decay uses integers only, so that replicas agree on every bit.
var halvings = [40]uint64{
	0xb504f333f9de6484, 0xd744fccad69d6af4, 0xeac0c6e7dd24392e, 0xf5257d152486cc2c,
	0xfa83b2db722a033a, 0xfd3e0c0cf486c174, 0xfe9e115c7b8f884b, 0xff4ecb59511ec8a5,
	0xffa756521c8daed1, 0xffd3a751c0f7e10b, 0xffe9d2b2f7db2755, 0xfff4e91bff1b8c3d,
	0xfffa747ea0040664, 0xfffd3a3b7814eb53, 0xfffe9d1cc60ddab1, 0xffff4e8e25879bfa,
	0xffffa7470363f451, 0xffffd3a37dda0313, 0xffffe9d1bdf703ae, 0xfffff4e8debe025e,
	0xfffffa746f4fa150, 0xfffffd3a37a3f8b0, 0xfffffe9d1bd1065a, 0xffffff4e8de845ad,
	0xffffffa746f41376, 0xffffffd3a37a05e3, 0xffffffe9d1bd01fb, 0xfffffff4e8de80c0,
	0xfffffffa746f4050, 0xfffffffd3a37a024, 0xfffffffe9d1bd011, 0xffffffff4e8de808,
	0xffffffffa746f404, 0xffffffffd3a37a02, 0xffffffffe9d1bd01, 0xfffffffff4e8de80,
	0xfffffffffa746f40, 0xfffffffffd3a37a0, 0xfffffffffe9d1bd0, 0xffffffffff4e8de8,
}

// invLn2 is 1/ln 2 - 1 in units of 2^-64.
const invLn2 = 0x71547652b82fe177

// factor returns 2^(-d/half) in units of 2^-64, below one; d > 0 and half > 0.
func factor(d, half time.Duration) uint64 {
	halves, rest := uint64(d)/uint64(half), uint64(d)%uint64(half)
	if halves >= 64 {
		return 0
	}
	frac, _ := bits.Div64(rest, 0, uint64(half)) // rest/half in units of 2^-64
	f := uint64(math.MaxUint64)
	for i := 0; i < len(halvings) && frac != 0; i++ {
		if frac>>63 == 1 {
			f, _ = bits.Mul64(f, halvings[i])
		}
		frac <<= 1
	}
	return f >> halves
}

// Decay returns what is left of v after d when it halves every half; a half of 0
// means no decay. It uses integer arithmetic, rounded down.
func Decay(v int64, d, half time.Duration) int64 {
	if v <= 0 {
		return 0
	}
	if half <= 0 || d <= 0 {
		return v
	}
	hi, _ := bits.Mul64(uint64(v), factor(d, half))
	return int64(hi)
}

// Accrued returns what is left, at the end of d, of a use of one unit per unit of
// time that lasted d, each moment of it having decayed since; with a half of 0 it
// is d.
func Accrued(d, half time.Duration) time.Duration {
	if half <= 0 || d <= 0 {
		return max(0, d)
	}
	if d < half>>16 { // less than one in 100,000 has decayed
		return d
	}
	// half/ln 2 × (1 - 2^(-d/half))
	more, _ := bits.Mul64(uint64(half), invLn2)
	left, _ := bits.Mul64(uint64(half)+more, math.MaxUint64-factor(d, half))
	return min(time.Duration(left), d)
}
