#!/bin/bash
#SBATCH --export=NONE
#SBATCH --get-user-env
#SBATCH --gres=gpu:1
module load cuda
./a.out
