#!/bin/bash
#SBATCH --gres=gpu:1
#SBATCH --time=4:00:00
srun --pty bash -i
