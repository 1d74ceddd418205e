#!/bin/bash
#SBATCH --gres=gpu:1
#BERTH --gpu-mem=12G --gpu-util=40%
#BERTH --expect 45m
python infer.py
