#!/bin/bash
#SBATCH --job-name=matlab
#SBATCH --gres=gpu:1
#SBATCH --licenses=matlab@flexlm:1
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=1:00:00
module load matlab/R2023a
matlab -nodisplay -nosplash -r "addpath('src'); train_net; exit"
