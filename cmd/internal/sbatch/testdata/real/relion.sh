#!/bin/bash
#SBATCH --ntasks=5
#SBATCH --partition=gpu
#SBATCH --cpus-per-task=6
#SBATCH --error=run.err
#SBATCH --output=run.out
#SBATCH --mem-per-cpu=8g
#SBATCH --gres=gpu:4
#SBATCH --nodes=1-1
mpirun -n 5 relion_refine_mpi --o Refine3D/job012/run --gpu "0:1:2:3" --j 6
