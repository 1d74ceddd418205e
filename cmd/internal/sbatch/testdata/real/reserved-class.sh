#!/bin/bash
#SBATCH --reservation=cs336-lab2
#SBATCH --account=students
#SBATCH --qos=normal
#SBATCH --gres=gpu:1
#SBATCH --time=50
python lab2.py
