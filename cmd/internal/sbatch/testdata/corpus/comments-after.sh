#!/bin/bash
#SBATCH --gres=gpu:1        # one card is enough
#SBATCH --time=1:00:00      # an hour
#SBATCH --mem=8G# no space before this one
##SBATCH --mem=64G
# SBATCH --partition=debug
python train.py
