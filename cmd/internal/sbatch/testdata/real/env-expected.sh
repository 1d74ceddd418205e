#!/bin/bash
#SBATCH --output=$HOME/logs/%j.out
#SBATCH --job-name=run-${USER}
#SBATCH --chdir=$SCRATCH/exp
#SBATCH --gres=gpu:$NGPU
#SBATCH --time=30
python x.py
