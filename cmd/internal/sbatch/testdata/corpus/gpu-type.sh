#!/bin/bash
#SBATCH --gres=gpu:a100:1
#SBATCH --time=30
nvidia-smi
