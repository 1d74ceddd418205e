#!/bin/sh
#SBATCH -A bio
#SBATCH -p long
#SBATCH --gpus 1
#SBATCH --mem 40G
#SBATCH --time 10:00:00
colabfold_batch --amber --use-gpu-relax input.csv results/
