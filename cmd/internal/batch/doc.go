// Package batch builds a job from a batch script and Slurm's options, as
// sbatch does. It links nothing that is slow to initialize, for the sake of
// the small sbatch program: Berth's own flags, spec files and models belong
// to package jobspec, which builds on it.
package batch
