// Package draws fixes what property tests draw, so that one tree has one answer
// on every machine and Go's test cache can remember it: flags on the command line
// would switch the cache off.
package draws

import (
	"flag"

	_ "pgregory.net/rapid" // it defines the flags
)

// Seed is what tests draw from unless the command line says -rapid.seed.
const Seed = "1"

// Fixed sets the seed and the number of draws of the test binary that calls it:
// 100 under the race detector, which makes each several times as dear, and 300
// without. No failing case is kept in a file for the next run to begin with, or
// what one hunt found would decide what every later run of the tests says; the
// seed that is printed finds it again. It is for a package variable of a test file:
//
//	var _ = draws.Fixed()
//
// What the command line says is read later and wins.
func Fixed() struct{} {
	checks := "300"
	if raceDetector {
		checks = "100"
	}
	for name, value := range map[string]string{"rapid.seed": Seed, "rapid.checks": checks, "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err) // rapid has other flags than this was written for
		}
	}
	return struct{}{}
}
