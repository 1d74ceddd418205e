#!/bin/bash
#SBATCH --job-name=het
#SBATCH --cpus-per-task=4 --mem-per-cpu=16g --ntasks=1
#SBATCH hetjob
#SBATCH --cpus-per-task=2 --mem-per-cpu=1g --ntasks=8 --gres=gpu:1
srun --het-group=0,1 run.app
