#!/bin/bash
#SBATCH --job-name=größe --gres=gpu:1
python x.py
