// Package control implements Slurm's commands that change things, scontrol and scancel.
package control
