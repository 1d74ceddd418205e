// Package cluster is the vocabulary of Berth: jobs, attempts, nodes, GPUs,
// shares, and the errors that users see. Packages beside it hold what stands on
// these words: accounting, dispatch, ladder. It imports nothing of ours, does no I/O, reads no clock and
// starts no goroutine, so that the scheduler, the state machine and the
// simulator share one arithmetic.
//
// Units: memory in MiB, compute in thousandths (milli) of one GPU, CPU in
// thousandths of one core, instants as [Time], spans as time.Duration. Stored
// values are integers.
//
// Values reached through pointers handed out by the state machine (*Job,
// *Node, *Spec) are immutable: a change makes a new value.
package cluster
