#!/bin/bash
#SBATCH --job-name=unet
#SBATCH --gres=gpu:1
#SBATCH --mem=24G
#SBATCH --time=05:00:00
#SBATCH --export=ALL,WANDB_MODE=offline

eval "$(conda shell.bash hook)"
conda activate unet
python -u train.py --amp
