#!/bin/bash
#SBATCH --gres=gpu:1g.10gb:1
#SBATCH --time=2:00:00
python small.py
