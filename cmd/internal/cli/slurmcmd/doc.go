// Package slurmcmd has the commands that submit and look as Slurm's do, sbatch, squeue,
// sinfo and sdiag, those that say what is used in another's place, and lint.
package slurmcmd
