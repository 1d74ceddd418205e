// Package slurmcmd has the commands that look and answer as Slurm's do, and lint.
package slurmcmd
