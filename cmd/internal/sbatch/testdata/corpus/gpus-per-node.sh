#!/bin/bash -l
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100:2
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=6
module load cuda/12.4
srun python -m trainer
