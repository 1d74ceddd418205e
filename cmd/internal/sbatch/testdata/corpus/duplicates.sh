#!/bin/bash
#SBATCH --time=1:00:00 --gres=gpu:1
#SBATCH --job-name=first
#SBATCH --gres=gpu:2
#SBATCH -t 2:00:00
#SBATCH -J second
python train.py
