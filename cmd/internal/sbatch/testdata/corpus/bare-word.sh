#!/bin/bash
#SBATCH --time=10:00 minutes
#SBATCH --gres=gpu:1
python train.py
