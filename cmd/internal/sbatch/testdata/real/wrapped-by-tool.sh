#!/bin/sh
# This script was created by sbatch --wrap.
#SBATCH --gres=gpu:1 --time=5
nvidia-smi
