#!/bin/bash
#SBATCH --gres=gpu:1
#BERTH --image=registry.example.org/lab/torch:2.9 --exclusive
python /workspace/train.py
