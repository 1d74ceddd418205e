// Package policies holds the scheduling policies that Berth can be run, and be
// compared, with: its own and re-implementations of published ones. A policy
// is a rule of placement, alone or with an order of the queue:
//
//	New("fgd", Options{Order: "qssf"})    // or New("fgd+qssf", Options{})
//
// Every policy is a function of the snapshot alone: there is no clock, no
// goroutine, no I/O and no dependence on the order of maps or of the
// snapshot's lists, and chance comes from Options.Seed and the snapshot's
// index. Every start fits by the arithmetic of dispatch.Ledger, the same that
// the state machine checks a plan with.
//
// DESIGN.md beside this file has the table of policies with their sources,
// costs, and whether they starve.
package policies
