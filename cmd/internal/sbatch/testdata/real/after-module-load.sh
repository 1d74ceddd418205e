#!/bin/bash
#SBATCH --gres=gpu:1
module load cuda
#SBATCH --time=12:00:00
#SBATCH --mem=64G
python x.py
