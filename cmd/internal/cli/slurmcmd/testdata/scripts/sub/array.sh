#!/bin/sh
#SBATCH --array=0-9 --gpus=1
#SBATCH --clusters=ALL --export-file=vars
srun python sweep.py
#SBATCH --time=10
