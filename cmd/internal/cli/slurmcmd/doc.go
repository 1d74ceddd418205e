// Package slurmcmd implements Slurm's commands that submit and list, sbatch,
// squeue, sinfo and sdiag, the commands that only name their replacement, and
// lint.
package slurmcmd
