// Package scheduler decides where jobs go. Its functions are pure: they read only
// their arguments, do not modify them, and return equal results for equal
// arguments. They use no clock, randomness, goroutines, I/O or map order; times
// come from the snapshot.
//
// [Schedule] runs a whole pass, [OnRelease] is the fast path after a share ended,
// [Explain] says why a job waits and [rules.NeverFits] whether it would wait
// forever. DESIGN.md in this folder gives the reasons.
package scheduler
