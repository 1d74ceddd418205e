// Package text writes as Slurm 22.05 does what its commands have in common: durations,
// times in the form that SLURM_TIME_FORMAT names, amounts of memory, error messages,
// and tables in the formats of -o and -O.
package text
