#!/bin/bash
# Slurm takes the shard, Berth the line below it.
#SBATCH --gres=shard:8
#BERTH --gpus=1 --gpu-mem=10G
#SBATCH -c 2
python infer.py
