#!/bin/bash
#SBATCH -J resnet-ddp
#SBATCH -N 1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH -c 32
#SBATCH --mem=128G
#SBATCH -t 1-12:00:00

torchrun --standalone --nproc-per-node=4 train.py --arch resnet50
