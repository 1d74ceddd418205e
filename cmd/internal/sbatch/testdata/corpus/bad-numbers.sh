#!/bin/bash
#SBATCH -c 0
#SBATCH -n -1
#SBATCH -N 1,3
#SBATCH --gpus=two
#SBATCH --array=9-1
#SBATCH --signal=USR9
#SBATCH --mail-type=SOMETIMES
#SBATCH --open-mode=x
#SBATCH --exclusive=maybe
#SBATCH --gres=gpu=2
#SBATCH --dependency=whenever:1
true
