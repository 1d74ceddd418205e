#!/bin/bash
#SBATCH -a 1,3,5-21:4
#SBATCH -G1
LR=$(sed -n "${SLURM_ARRAY_TASK_ID}p" lrs.txt)
python train.py --lr $LR
