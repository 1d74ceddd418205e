#!/bin/bash
#SBATCH --gres=shard:4
#SBATCH --time=30
#BERTH --gpus=1 --gpu-mem=12G
python infer.py
