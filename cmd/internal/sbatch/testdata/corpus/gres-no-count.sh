#!/bin/bash
#SBATCH --gres=gpu
#SBATCH -t 0:30
nvidia-smi -L
