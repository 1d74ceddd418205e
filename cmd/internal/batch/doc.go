// Package batch makes a job of a batch script and Slurm's options, as sbatch does. It
// links nothing that takes long to initialize, so that the program for sbatch alone
// can: flags of Berth's own, spec files and models are package jobspec's, which
// stands on it.
package batch
