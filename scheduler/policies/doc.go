// Package policies holds the scheduling policies that Berth can run and be compared
// with: its own and re-implementations of published ones. A policy is a placement
// rule, alone or with an order of the queue:
//
//	New("fgd", Options{Order: "qssf"})    // or New("fgd+qssf", Options{})
//
// Every policy is a function of the snapshot alone: it uses no clock, goroutines or
// I/O and does not depend on the order of maps or of the snapshot's lists, and
// randomness comes from Options.Seed and the snapshot's index. Every start fits by
// the arithmetic of dispatch.Ledger, by which the state machine also checks a plan.
//
// DESIGN.md in this folder has the table of policies with their sources, costs, and
// whether they starve jobs.
package policies
