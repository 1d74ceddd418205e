// Package option is what Slurm's commands have in common here: how options
// are spelled, which are ignored or refused and why, which variables replace
// them, and how a command reports errors and ends.
package option
