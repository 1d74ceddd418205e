#!/bin/bash
#SBATCH --output=$HOME/logs/%j.out
#SBATCH --job-name=run-$USER
#SBATCH --gres=gpu:1
#SBATCH --time=30
python x.py
