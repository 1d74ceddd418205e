#!/bin/bash
#SBATCH --gres=gpu:2 -C a100_80gb
#BERTH --gpu-type=A100-SXM4-80GB
python train.py
