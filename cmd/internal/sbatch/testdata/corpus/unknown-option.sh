#!/bin/bash
#SBATCH --gres=gpu:1
#SBATCH --gpu-memory=10G
#SBATCH -X
python train.py
