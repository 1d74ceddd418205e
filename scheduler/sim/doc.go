// Package sim replays workloads against the real scheduler in virtual time. A run
// is a function of its workload, its cluster and its options: equal arguments give
// equal schedules, in whatever order the jobs' rows were.
//
// The scheduler decides by predictions; what happens follows the truth of the
// workload and an interference model. See DESIGN.md for the invariants, and package
// trace for the readers of published traces.
package sim
