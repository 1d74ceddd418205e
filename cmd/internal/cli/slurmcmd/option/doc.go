// Package option is what Slurm's commands have in common here: how their options are
// spelled, which of them are ignored or refused and why, which variables stand for them,
// and how a command says what went wrong and ends.
package option
