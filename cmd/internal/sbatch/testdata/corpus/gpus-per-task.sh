#!/bin/bash
#SBATCH --ntasks=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=3
#SBATCH --mem-per-cpu=2G
mpirun ./solver input.nml
