// Package soaktest determines how often a fault test repeats: a few times among the other
// tests, and as often as a claim needs under "make soak".
//
// The name of a fault test begins with TestSoak. "make test" runs its short form; "make soak"
// runs only those tests, in full, with a long timeout. A fault test counts what it finds and
// logs the counts, even when all is well.
package soaktest

import (
	"math"
	"strconv"
	"syscall"
	"testing"
)

// Env is the variable that requests full forms: 1 for all repetitions, or the fraction that the
// machine has time for, such as 0.1.
const Env = "BERTH_SOAK"

// Times returns the number of repetitions: short among the other tests, full under "make soak",
// and a fraction of full, but no less than short, where only a fraction was requested. An
// invalid value of the variable fails the test.
func Times(t testing.TB, short, full int) int {
	t.Helper()
	// This package is linked into no program that could pass the value.
	v, ok := syscall.Getenv(Env)
	if !ok || v == "" {
		return short
	}
	n, err := times(v, short, full)
	if err != "" {
		t.Fatal(err)
	}
	t.Logf("soak: %d of %d times", n, full)
	return n
}

func times(v string, short, full int) (n int, problem string) {
	part, err := strconv.ParseFloat(v, 64)
	if err != nil || !(part > 0 && part <= 1) {
		return 0, Env + "=" + v + ": want a number above 0 and at most 1, such as 1 for the full form"
	}
	return max(short, int(math.Ceil(part*float64(full)))), ""
}
