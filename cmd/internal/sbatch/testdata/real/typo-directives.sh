#!/bin/bash
#SBATCH --job_name=typo
#SBATCH --gpus-per-nodes=1
#SBATCH --time=30
python x.py
