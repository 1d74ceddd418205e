#!/bin/bash
#SBATCH --time = 10:00
python train.py
