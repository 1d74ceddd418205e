#!/bin/bash
#SBATCH --gres=gpu:1
set -e
#SBATCH --time=10:00
#SBATCH --mem=64G
python train.py
