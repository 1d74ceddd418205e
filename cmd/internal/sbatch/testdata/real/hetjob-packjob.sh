#!/bin/bash
#SBATCH --ntasks=1 --mem=8G
#SBATCH packjob
#SBATCH --ntasks=4 --gres=gpu:1
srun --pack-group=1 python worker.py
