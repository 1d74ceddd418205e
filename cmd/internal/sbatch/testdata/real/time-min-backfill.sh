#!/bin/bash
#SBATCH --time=2-00:00:00
#SBATCH --time-min=4:00:00
#SBATCH --gres=gpu:1
python train.py
