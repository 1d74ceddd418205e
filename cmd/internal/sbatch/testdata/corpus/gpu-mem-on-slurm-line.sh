#!/bin/bash
#SBATCH --gres=gpu:1 --gpu-mem=12G
python infer.py
