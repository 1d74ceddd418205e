package neural

import (
	"math"
	"math/rand/v2"
)

// The standard library's Exp and Log are assembly on one processor and fused Go
// on another, so their last bits differ. These take the same steps everywhere:
// no product is left for the compiler to fuse with a sum.

const (
	ln2Hi = 6.93147180369123816490e-01 // upper bits of ln 2; k*ln2Hi is exact for |k| < 2^20
	ln2Lo = 1.90821492927058770002e-10
	// expLimit keeps exp far from overflow; callers need no more.
	expLimit = 100
)

// exp returns e**x to about 1e-15 for |x| <= expLimit, and treats x beyond as
// that limit.
func exp(x float64) float64 {
	x = max(-expLimit, min(expLimit, x))
	k := math.Floor(float64(x/math.Ln2) + 0.5)
	r := x - float64(k*ln2Hi) - float64(k*ln2Lo)
	// |r| <= ln(2)/2: 14 terms leave 1e-17.
	s := 1.0
	for n := 13; n >= 1; n-- {
		s = 1 + float64(s*r)/float64(n)
	}
	return float64(s * math.Float64frombits(uint64(int64(k)+1023)<<52))
}

// log returns the natural logarithm of a positive finite x to about 1e-15.
func log(x float64) float64 {
	f, e := math.Frexp(x) // f in [0.5, 1)
	if f < math.Sqrt2/2 {
		f, e = float64(f*2), e-1
	}
	// log f = 2 atanh(s), with |s| < 0.172.
	s := (f - 1) / (f + 1)
	s2 := float64(s * s)
	sum := 0.0
	for n := 23; n >= 1; n -= 2 {
		sum = float64(sum*s2) + 1/float64(n)
	}
	return float64(float64(e)*ln2Hi) + (float64(2*s*sum) + float64(float64(e)*ln2Lo))
}

// gauss draws from N(0, 1) by Marsaglia's polar method. rand's own NormFloat64
// is left alone because it compares with math.Exp.
func gauss(r *rand.Rand) float64 {
	for {
		u, v := symmetric(r), symmetric(r)
		if s := float64(u*u) + float64(v*v); s > 0 && s < 1 {
			return float64(u * math.Sqrt(float64(-2*log(s))/s))
		}
	}
}

// symmetric draws evenly from [-1, 1). The conversion keeps the division inside
// Float64 from being fused with what follows.
func symmetric(r *rand.Rand) float64 {
	u := float64(r.Float64())
	return u + u - 1
}
