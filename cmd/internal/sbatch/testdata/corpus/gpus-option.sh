#!/bin/bash
#SBATCH -G 2
#SBATCH --cpus-per-gpu=8
#SBATCH --mem-per-gpu=32G
#SBATCH -t 600
python finetune.py
