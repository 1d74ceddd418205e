#!/bin/bash
#SBATCH --gres=gpu:1 --time
python train.py
