// Package scheduler decides where jobs go. Its functions are pure: they read
// nothing but their arguments, change none of them, and equal arguments give
// an equal result. There is no clock, no randomness, no goroutine, no I/O and
// no dependence on the order of maps; times come from the snapshot.
//
// [Schedule] makes a whole pass, [OnRelease] the fast path after a share
// ended, [Explain] says why a job waits and [rules.NeverFits] whether it would wait
// for ever. DESIGN.md beside this file tells why they are the way they are.
package scheduler
