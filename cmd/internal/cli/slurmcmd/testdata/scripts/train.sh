#!/bin/bash
#SBATCH --job-name=train --gres=gpu:a100:1
#SBATCH -p gpu
#SBATCH -n 2 -c 4 --mem-per-cpu=2G
#SBATCH -t 1-12 -o logs/%x-%j.out
#BERTH --gpu-mem=12G
python train.py "$@"
