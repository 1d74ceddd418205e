#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
#BERTH --nodes=1
torchrun --standalone --nproc-per-node=4 train.py
