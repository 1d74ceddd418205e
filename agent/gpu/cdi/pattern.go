package cdi

import (
	"regexp"
	"sync"
)

// pattern compiles an expression when first needed: otherwise every run of the only program,
// even for the shortest command, would pay for it (2 ms in all).
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
