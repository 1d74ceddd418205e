package sim

import "math"

// MeanCI returns the mean of values and half of its 95 % interval by Student's
// t; 0 for a single value. There must be at least one.
func MeanCI(vs []float64) (mean, half float64) {
	for _, v := range vs {
		mean += v
	}
	mean /= float64(len(vs))
	if len(vs) < 2 {
		return mean, 0
	}
	sq := 0.0
	for _, v := range vs {
		sq += (v - mean) * (v - mean)
	}
	n := float64(len(vs))
	return mean, student(len(vs)-1) * math.Sqrt(sq/(n-1)/n)
}

// student is the 97.5 % quantile of Student's t by degrees of freedom, from 20
// on by the first terms of its expansion around the normal's, to within 0.001.
func student(df int) float64 {
	t := []float64{0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093}
	if df < len(t) {
		return t[df]
	}
	const z = 1.959964
	n := float64(df)
	return z + (z*z*z+z)/(4*n) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*n*n)
}
