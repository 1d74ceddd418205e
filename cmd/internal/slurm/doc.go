// Package slurm prints jobs and nodes as the commands of Slurm 22.05 do: the
// default tables of squeue and sinfo, formats of -o and -O, and the records
// of scontrol show. It does not know where jobs come from; tests compare its
// output with that of real Slurm, byte by byte.
package slurm
