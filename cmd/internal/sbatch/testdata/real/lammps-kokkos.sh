#!/bin/bash
#SBATCH --job-name=LAMMPS
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=6:0:0
#SBATCH --account=mat-sci
#SBATCH --distribution=block:cyclic
#SBATCH --mem-bind=local
#SBATCH --threads-per-core=1

module load LAMMPS/23Jun2022-foss-2021b-kokkos-CUDA-11.4.1
export OMP_NUM_THREADS=1
srun lmp -k on g 4 -sf kk -pk kokkos newton on neigh half -in in.lj
