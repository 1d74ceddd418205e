#!/bin/bash
#SBATCH --job-name train
#SBATCH --gres gpu:2
#SBATCH --time 90
#SBATCH --mem 4000
python train.py
