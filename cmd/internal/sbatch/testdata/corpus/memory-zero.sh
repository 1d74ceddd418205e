#!/bin/bash
#SBATCH --exclusive
#SBATCH --gres=gpu:8
#SBATCH --mem=0
python train.py
