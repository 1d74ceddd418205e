#!/bin/bash
#SBATCH --ntasks-per-gpu=2 --gpus=3 --mincpus=8
mpirun ./a.out
