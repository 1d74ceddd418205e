#!/bin/bash
#SBATCH --job-name="my training run"
#SBATCH --comment='lr=3e-4, bs="32"'
#SBATCH --output="logs/run one-%j.out"
#SBATCH -G "1"
python train.py
