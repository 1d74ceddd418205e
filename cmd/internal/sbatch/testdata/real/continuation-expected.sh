#!/bin/bash
#SBATCH --gres=gpu:1 \
#SBATCH --mem=8G \
#SBATCH --time=10
python x.py
