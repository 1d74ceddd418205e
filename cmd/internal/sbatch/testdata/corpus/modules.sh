#!/bin/bash -l
#SBATCH -p gpu -A physics
#SBATCH --gres=gpu:1 -c8
#SBATCH -t 24:00:00
module purge
module load gcc/12 cuda/12.2 openmpi
gmx mdrun -deffnm md -nb gpu
