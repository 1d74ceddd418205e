package cdi

import (
	"regexp"
	"sync"
)

// pattern compiles an expression when it is first needed: every run of the one
// program, the shortest command too, would pay for it otherwise (2 ms in all).
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
