// Package trace reads published job traces into workloads. A reader goes by
// the columns of a file's head and not by its name, so that any file of the
// same form is read; where two forms name a column alike but mean another
// unit, a column that only one of them has tells them apart.
//
// Files are read row by row, compressed or not. Rows that make no job are
// reported with their numbers; what a trace does not say is left zero, and
// what had to be assumed is said in the workload's notes.
package trace
