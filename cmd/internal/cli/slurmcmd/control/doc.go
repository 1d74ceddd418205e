// Package control has the commands of Slurm's that change things, scontrol and scancel.
package control
