#!/bin/bash
#SBATCH --job-name=qe
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8
#SBATCH --switches=1
#SBATCH --contiguous
#SBATCH --time=0:30:00
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
mpirun pw.x -npool 2 -in si.scf.in > si.scf.out
