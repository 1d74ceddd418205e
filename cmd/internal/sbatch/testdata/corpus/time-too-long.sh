#!/bin/bash
#SBATCH --time=60-00:00:00
#SBATCH -G 1
python train.py
