// Package text formats, as Slurm 22.05 does, what its commands have in
// common: durations, times in the form named by SLURM_TIME_FORMAT, amounts of
// memory, error messages, and tables in the formats of -o and -O.
package text
