// Package sim replays workloads against the real scheduler in virtual time. A
// run is a function of its workload, its cluster and its options: the same
// arguments give the same schedule, whatever the order of the jobs' rows was.
//
// What the scheduler decides goes by predictions; what happens goes by the
// truth of the workload and by an interference model. See DESIGN.md for the
// laws that hold, and package trace for the readers of published traces.
package sim
