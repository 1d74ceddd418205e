#!/bin/bash
#SBATCH --exclusive --gres=gpu:4
python bench.py
