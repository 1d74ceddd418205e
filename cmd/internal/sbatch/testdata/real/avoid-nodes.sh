#!/bin/bash
#SBATCH --exclude=gpu[03-05],gpu11
#SBATCH --gres=gpu:1
#SBATCH --time=60
python x.py
