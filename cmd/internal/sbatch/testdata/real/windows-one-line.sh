#!/bin/bash
#SBATCH --gres=gpu:1
#SBATCH --time=30
python x.py
