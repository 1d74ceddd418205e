#!/bin/bash
##SBATCH --gres=gpu:8
# SBATCH --mem=500G
#SBATCH --gres=gpu:1
#SBATCH --time=30
#sbatch --qos=high
python x.py
