#!/bin/bash
#SBATCH --gres=mps:50
#SBATCH --time=30
python infer.py
