#!/bin/bash
#SBATCH -N 2-4 --ntasks-per-node=2
#SBATCH --gpus-per-node=2
./train
