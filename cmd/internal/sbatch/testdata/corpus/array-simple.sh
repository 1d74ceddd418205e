#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --array=0-99%20
#SBATCH --gres=gpu:1
#SBATCH --output=sweep_%A_%a.out
python sweep.py --index $SLURM_ARRAY_TASK_ID
