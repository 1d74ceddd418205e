#!/bin/bash
#SBATCH --job-name=old --gres=gpu:4 --time=24:00:00
#BERTH --name new --gpus 2
#BERTH --time 12h
#SBATCH --mem=8G
python train.py
