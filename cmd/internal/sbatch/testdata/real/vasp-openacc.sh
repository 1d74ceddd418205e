#!/bin/bash -l
#SBATCH --time=24:00:00
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100:4
#SBATCH --ntasks-per-node=4
#SBATCH --ntasks-per-socket=2
#SBATCH --cpus-per-task=9
#SBATCH --gpu-freq=high
#SBATCH --profile=task
#SBATCH --acctg-freq=task=30
srun --cpu-bind=cores vasp_std
