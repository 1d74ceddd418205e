// Package soaktest says how often a fault test repeats itself: a few times
// among the other tests, and as often as a claim needs under "make soak".
//
// A fault test has a name that begins with TestSoak. "make test" runs its short
// form; "make soak" runs those tests alone, in full, with a long timeout. It
// counts what it finds and logs the counts, also when all is well.
package soaktest

import (
	"math"
	"strconv"
	"syscall"
	"testing"
)

// Env is the variable that asks for full forms: 1 for all of it, or the part
// of it that the machine has time for, such as 0.1.
const Env = "BERTH_SOAK"

// Times returns how often to repeat: short among the other tests, full under
// "make soak", and a part of full, but no less than short, where only a part
// was asked for. A value of the variable that is none ends the test.
func Times(t testing.TB, short, full int) int {
	t.Helper()
	// This package is linked into no program that could hand the value over.
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
