#!/bin/bash
#SBATCH --job-name=“train”
#SBATCH –-gres=gpu:1
python x.py
