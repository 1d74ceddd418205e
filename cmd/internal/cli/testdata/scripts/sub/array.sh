#!/bin/sh
#SBATCH --array=0-9 --gpus=1
srun python sweep.py
#SBATCH --time=10
