#!/bin/bash
#SBATCH --dependency=afterok:1234
#SBATCH --gres=gpu:1
python evaluate.py
