#!/bin/bash
#SBATCH --gres=shard:8
#SBATCH -c 2
python infer.py
