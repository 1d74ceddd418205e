// Package trace reads published job traces into workloads. A reader is chosen by
// the columns of a file's head and not by its name, so any file of the same form is
// read; if two forms use one column name for different units, a column that only
// one of them has distinguishes them.
//
// Files are read row by row, compressed or not. Rows that make no job are reported
// with their numbers; what a trace does not say is left zero, and assumptions are
// in the workload's notes.
package trace
