#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=16
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-task=1
#SBATCH --gpu-bind=single:1
#SBATCH --cpus-per-task=12
#SBATCH --time=12:00:00
srun --kill-on-bad-exit python pmap_train.py --distributed
