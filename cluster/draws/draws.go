// Package draws fixes the random draws of property tests, so that a tree gives the
// same result on every machine and Go's test cache can remember it: command-line
// flags would disable the cache.
package draws

import (
	"flag"

	_ "pgregory.net/rapid" // it defines the flags
)

// Seed is the seed of tests unless -rapid.seed is given.
const Seed = "1"

// Fixed sets the seed and the number of draws of the test binary that calls it: 100
// under the race detector, which makes each several times as expensive, and 300
// without. Failing cases are not saved, since one saved case would otherwise decide
// the result of every later run; the printed seed reproduces it. Call it from a
// package variable of a test file:
//
//	var _ = draws.Fixed()
//
// Command-line flags are parsed later and take precedence.
func Fixed() struct{} {
	checks := "300"
	if raceDetector {
		checks = "100"
	}
	for name, value := range map[string]string{"rapid.seed": Seed, "rapid.checks": checks, "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err) // rapid's flags have changed
		}
	}
	return struct{}{}
}
