#!/bin/bash
#SBATCH --dependency=afterok:1234:1235,afterany:1236
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --gres=gpu:1
#SBATCH --time=60
python stage2.py
