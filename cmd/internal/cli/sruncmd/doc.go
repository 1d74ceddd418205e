// Package sruncmd is srun and salloc: steps inside of jobs, and allocations for
// people who sit at a terminal. Its words and exit codes are those of Slurm
// 22.05.
package sruncmd
